use std::env;

use super::settings::{ExportError, Protocol, check_endpoint};

/// What the standard variables say of the two signals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Environment {
    pub(super) traces: Option<Signal>,
    pub(super) metrics: Option<Signal>,
}

/// Where one signal goes. The exporter itself reads the endpoint from the same variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signal {
    pub(super) endpoint: String,
    pub(super) protocol: Protocol,
}

impl Environment {
    /// `None` where no signal has an endpoint.
    pub(super) fn read() -> Result<Option<Self>, ExportError> {
        if text("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let traces = signal("TRACES")?;
        let metrics = signal("METRICS")?;
        Ok((traces.is_some() || metrics.is_some()).then_some(Self { traces, metrics }))
    }
}

fn signal(name: &str) -> Result<Option<Signal>, ExportError> {
    let exporter = format!("OTEL_{name}_EXPORTER");
    match text(&exporter).as_deref() {
        Some("none") => return Ok(None),
        None | Some("otlp") => {}
        Some(found) => {
            let expected = "otlp or none";
            let found = found.to_owned();
            return Err(ExportError::Variable { variable: exporter, expected, found });
        }
    }
    let Some((variable, endpoint)) = specific(name, "ENDPOINT") else { return Ok(None) };
    let protocol = protocol(name)?;
    check_endpoint(&variable, &endpoint, protocol)?;
    Ok(Some(Signal { endpoint, protocol }))
}

fn protocol(signal: &str) -> Result<Protocol, ExportError> {
    match specific(signal, "PROTOCOL") {
        None => Ok(Protocol::default()),
        Some((_, value)) if value == "grpc" => Ok(Protocol::Grpc),
        Some((_, value)) if value == "http/protobuf" => Ok(Protocol::HttpProtobuf),
        Some((variable, found)) => {
            Err(ExportError::Variable { variable, expected: "grpc or http/protobuf", found })
        }
    }
}

/// The signal's own variable, else the one for all.
fn specific(signal: &str, rest: &str) -> Option<(String, String)> {
    [format!("OTEL_EXPORTER_OTLP_{signal}_{rest}"), format!("OTEL_EXPORTER_OTLP_{rest}")]
        .into_iter()
        .find_map(|variable| text(&variable).map(|value| (variable, value)))
}

/// Empty is not set, as the specification has it.
fn text(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|value| !value.is_empty())
}
