use std::path::Path;
use std::time::Duration;

use bytesize::ByteSize;

use super::Config;

/// The largest request that can be asked for, 1 GiB: lengths of gRPC have 32 bits.
const MAX_MESSAGE: ByteSize = ByteSize::gib(1);
/// The longest times that can be asked for, a week.
const MAX_TIME: Duration = Duration::from_secs(7 * 24 * 3600);

impl Config {
    /// What single values cannot tell.
    pub(super) fn check(&self) -> Result<(), String> {
        let endpoint = &self.next.endpoint;
        if endpoint.is_empty() {
            return Err(
                "next.endpoint: expected an OTLP endpoint to send to, found none".to_owned()
            );
        }
        let address: http::Uri =
            endpoint.parse().map_err(|_| "next.endpoint: expected an address".to_owned())?;
        if !matches!(address.scheme_str(), Some("http" | "https")) || address.host().is_none() {
            // Without the text, which may hold a password.
            let found = address.scheme_str().unwrap_or("none");
            return Err(format!(
                "next.endpoint: expected http:// or https:// and a host, found the scheme {found}"
            ));
        }
        if address.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("next.endpoint: expected no user and password in the address, \
                        use next.headers"
                .to_owned());
        }
        for (name, address) in
            [("next.endpoint", self.listen.grpc), ("next.endpoint", self.listen.http)]
        {
            if endpoint.contains(&address.to_string()) && address.port() != 0 {
                return Err(format!(
                    "{name}: expected another server, found this one's own port {address}"
                ));
            }
        }
        self.next.headers()?;
        self.check_limits()?;
        for (name, time) in [
            ("next.timeout", self.next.timeout),
            ("forget_after", self.forget_after),
            ("shutdown_timeout", self.shutdown_timeout),
        ] {
            if time.is_zero() || time > MAX_TIME {
                return Err(format!(
                    "{name}: expected more than 0 s, at most 7 days, found {time:?}"
                ));
            }
        }
        if let Some(tls) = &self.tls {
            readable("tls.certificate", &tls.certificate)?;
            readable("tls.key", &tls.key)?;
        }
        self.token()?;
        self.next.certificate()?;
        Ok(())
    }

    fn check_limits(&self) -> Result<(), String> {
        let limits = &self.limits;
        let within = |name: &str, size: ByteSize, least: ByteSize, most: ByteSize| {
            if size < least || size > most {
                return Err(format!("limits.{name}: expected {least} to {most}, found {size}"));
            }
            Ok(())
        };
        within("message", limits.message, ByteSize::kib(1), MAX_MESSAGE)?;
        within("decompressed", limits.decompressed, limits.message, MAX_MESSAGE)?;
        // A request, what it is unpacked to, and that with what is added.
        let least = limits.message + limits.decompressed + limits.decompressed;
        within("in_flight", limits.in_flight, least, ByteSize::tib(1))?;
        within("name", limits.name, ByteSize::b(36), ByteSize::kib(64))?;
        for (name, number) in [("runs", limits.runs), ("ranks", limits.ranks)] {
            if number == 0 || number > 1_000_000 {
                return Err(format!("limits.{name}: expected 1 to 1000000, found {number}"));
            }
        }
        Ok(())
    }
}

fn readable(name: &str, path: &Path) -> Result<(), String> {
    std::fs::read(path).map(|_| ()).map_err(|error| format!("{name}: {}: {error}", path.display()))
}
