//! The three ports.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use hyper_util::rt::TokioTimer;

use super::config::Tls;

/// How long a client may take to send the head of a request, from the connection or the request before
/// on.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Requests of one connection at once.
const MAX_STREAMS: u32 = 128;
/// A peer that is gone without a word is noticed by pings this far apart.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// A port that is taken and not served yet.
#[derive(Debug)]
pub(super) struct Port {
    name: &'static str,
    listener: TcpListener,
    pub(super) address: SocketAddr,
}

impl Port {
    /// Takes a port.
    pub(super) fn take(name: &'static str, address: SocketAddr) -> Result<Self, String> {
        let wrong = |error: io::Error| format!("listen.{name}: {address}: {error}");
        let listener = TcpListener::bind(address).map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        Ok(Self { name, listener, address })
    }

    /// Serves until the handle ends it.
    pub(super) async fn serve(
        self,
        router: Router,
        tls: Option<RustlsConfig>,
        handle: Handle<SocketAddr>,
    ) -> Result<(), String> {
        let service = router.into_make_service();
        let served = match tls {
            None => {
                let server = axum_server::from_tcp(self.listener).map_err(told(self.name))?;
                let mut server = server.acceptor(NoDelayAcceptor);
                patience(server.http_builder());
                server.first_request_timeout(HEAD_TIMEOUT).handle(handle).serve(service).await
            }
            Some(tls) => {
                let server = axum_server::from_tcp(self.listener).map_err(told(self.name))?;
                let acceptor = RustlsAcceptor::new(tls).acceptor(NoDelayAcceptor);
                let mut server = server.acceptor(acceptor);
                patience(server.http_builder());
                server.first_request_timeout(HEAD_TIMEOUT).handle(handle).serve(service).await
            }
        };
        served.map_err(told(self.name))
    }
}

fn told(name: &'static str) -> impl Fn(io::Error) -> String {
    move |error| format!("listen.{name}: {error}")
}

fn patience<E>(builder: &mut hyper_util::server::conn::auto::Builder<E>) {
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .max_concurrent_streams(MAX_STREAMS);
}

/// Reads the certificate and its key.
pub(super) async fn certificate(tls: &Tls) -> Result<RustlsConfig, String> {
    RustlsConfig::from_pem_file(&tls.certificate, &tls.key).await.map_err(|error| {
        let (certificate, key) = (tls.certificate.display(), tls.key.display());
        format!("tls: expected a certificate in {certificate} and its key in {key}: {error}")
    })
}
