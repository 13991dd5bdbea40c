use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{KeyValue, Value};
use url::Url;

use super::Sampling;
use super::environment::Environment;
use super::file::Lines;

/// How spans and metrics travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// Protobuf over HTTP, port 4318 by convention. Needs no async runtime.
    #[default]
    HttpProtobuf,
    /// gRPC, port 4317 by convention. Runs on a thread of its own.
    Grpc,
}

/// Where spans and metrics go, and how.
///
/// [`install`](crate::layer::Builder::install) asks the environment by itself; this is for programs
/// that decide. What is not set here comes from the standard `OTEL_*` variables: headers, timeouts,
/// compression, resource attributes, the queue of the batch processor, the interval of metrics.
///
/// # Examples
///
/// ```
/// use phasescope::export::{Export, Protocol};
///
/// let export = Export::to_endpoint("http://localhost:4317", Protocol::Grpc)?
///     .service_name("pretraining")
///     .header("authorization", "Bearer secret")?
///     .resource_attribute("deployment.environment.name", "staging");
/// # drop(export);
///
/// let error = Export::to_endpoint("localhost", Protocol::HttpProtobuf).unwrap_err();
/// assert!(error.to_string().contains("expected an endpoint such as http://localhost:4318"));
/// # Ok::<(), phasescope::export::ExportError>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct Export {
    pub(super) target: Target,
    pub(super) headers: HeaderMap,
    pub(super) service_name: Option<String>,
    pub(super) resource: Vec<KeyValue>,
    pub(super) sampling: Option<Sampling>,
}

pub(super) enum Target {
    /// One endpoint for both signals.
    Endpoint {
        url: String,
        protocol: Protocol,
    },
    /// Each signal where its variables say.
    Environment(Environment),
    File {
        path: PathBuf,
        lines: Arc<Lines>,
    },
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint { url, protocol } => write!(f, "{} by {protocol:?}", shown(url)),
            Self::Environment(_) => f.write_str("where the environment says"),
            Self::File { path, .. } => write!(f, "{}", path.display()),
        }
    }
}

impl Export {
    /// To an endpoint that takes OTLP: the base address, to which HTTP adds `/v1/traces` and
    /// `/v1/metrics`.
    ///
    /// # Errors
    ///
    /// When it is no address with `http` or `https`.
    pub fn to_endpoint(url: &str, protocol: Protocol) -> Result<Self, ExportError> {
        check_endpoint("the endpoint", url, protocol)?;
        Ok(Self::to(Target::Endpoint { url: url.to_owned(), protocol }))
    }

    /// To a new file, in the OpenTelemetry Collector's file format: OTLP/JSON, one request a line,
    /// each written whole, at most [`MAX_FILE_BYTES`](super::MAX_FILE_BYTES). `phasescope diagnose`
    /// reads it, and so does the Collector's file receiver.
    ///
    /// # Errors
    ///
    /// When the file is there already or cannot be made.
    pub fn to_file(path: impl AsRef<Path>) -> Result<Self, ExportError> {
        let path = path.as_ref();
        let lines = Lines::create(path).map_err(|error| ExportError::File {
            path: path.display().to_string(),
            reason: error.to_string(),
        })?;
        Ok(Self::to(Target::File { path: path.to_owned(), lines }))
    }

    /// What the standard variables say; `None` where they name no endpoint, or
    /// `OTEL_SDK_DISABLED` is `true`: then nothing is sent.
    ///
    /// Read here: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_PROTOCOL` (`grpc`,
    /// `http/protobuf`), the same with `_TRACES_` and `_METRICS_`, `OTEL_TRACES_EXPORTER` and
    /// `OTEL_METRICS_EXPORTER` (`otlp`, `none`). The exporters read the rest.
    ///
    /// # Errors
    ///
    /// When a variable has a value that cannot be, with its name.
    pub fn from_env() -> Result<Option<Self>, ExportError> {
        Ok(Environment::read()?.map(|environment| Self::to(Target::Environment(environment))))
    }

    fn to(target: Target) -> Self {
        Self {
            target,
            headers: HeaderMap::new(),
            service_name: None,
            resource: Vec::new(),
            sampling: None,
        }
    }

    /// Adds a header to every request, such as a token. Not used by a file.
    ///
    /// # Errors
    ///
    /// When HTTP does not allow the name or the value.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, ExportError> {
        let refused = |part| ExportError::Header { name: name.to_owned(), part };
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused("name"))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| refused("value"))?;
        value.set_sensitive(true);
        value.to_str().map_err(|_| refused("value"))?;
        self.headers.insert(key, value);
        Ok(self)
    }

    /// Names the service; the default is `OTEL_SERVICE_NAME`, else the name of the program.
    pub fn service_name(mut self, name: impl Into<String>) -> Self {
        self.service_name = Some(name.into());
        self
    }

    /// Adds an attribute to the resource, over one of the same name from the environment.
    pub fn resource_attribute(
        mut self,
        key: impl Into<opentelemetry::Key>,
        value: impl Into<Value>,
    ) -> Self {
        self.resource.push(KeyValue::new(key, value));
        self
    }

    /// Sets which steps' spans are exported. The default is [`Sampling::default`], or the SDK's own
    /// sampler where `OTEL_TRACES_SAMPLER` names one.
    pub fn sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = Some(sampling);
        self
    }
}

/// Checks an endpoint. gRPC's may come without a scheme, as the specification has it.
pub(super) fn check_endpoint(
    place: &str,
    url: &str,
    protocol: Protocol,
) -> Result<(), ExportError> {
    let parsed = match Url::parse(url) {
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https") => Some(parsed),
        _ if protocol == Protocol::Grpc && !url.contains("://") => {
            Url::parse(&format!("http://{url}")).ok()
        }
        _ => None,
    };
    if parsed.is_some_and(|parsed| parsed.has_host()) {
        return Ok(());
    }
    let port = if protocol == Protocol::Grpc { 4317 } else { 4318 };
    Err(ExportError::Endpoint { place: place.to_owned(), port, found: shown(url) })
}

/// An address for people: without user, password and query, which may hold secrets.
pub(super) fn shown(address: &str) -> String {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), address),
    };
    // A password may hold anything: what stands before the last @ is left out.
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    format!("{scheme}{host}")
}

/// A setting of the export that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// No endpoint.
    #[error("{place}: expected an endpoint such as http://localhost:{port}, found \"{found}\"")]
    Endpoint {
        /// The variable, or "the endpoint".
        place: String,
        /// The port that the protocol has by convention.
        port: u16,
        /// What was found.
        found: String,
    },
    /// A variable with an unknown value.
    #[error("{variable}: expected {expected}, found \"{found}\"")]
    Variable {
        /// The variable.
        variable: String,
        /// What was expected.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// A header that HTTP does not allow.
    #[error("header \"{name}\": expected a {part} that HTTP allows, found another character")]
    Header {
        /// The header's name.
        name: String,
        /// Which part, `name` or `value`; the value is not told, since it may be a secret.
        part: &'static str,
    },
    /// A file that cannot be made.
    #[error("{path}: expected to make a new file: {reason}")]
    File {
        /// The file.
        path: String,
        /// What the system says.
        reason: String,
    },
}
