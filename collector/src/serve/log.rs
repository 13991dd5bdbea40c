use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use super::config::{Log, LogFormat, LogLevel};

/// Writes the collector's own log to standard error; what its libraries say from warnings on.
pub(super) fn start(log: &Log) {
    let level = match log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let others = level.min(LevelFilter::WARN);
    let targets = Targets::new().with_default(others).with_target("phasescope", level);
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match log.format {
        LogFormat::Text => lines.with_target(false).with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    // Nothing else of this program sets a subscriber.
    let _ = tracing_subscriber::registry().with(lines.with_filter(targets)).try_init();
}
