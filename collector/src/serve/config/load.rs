use std::fs;
use std::path::Path;

use figment::Figment;
use figment::error::Kind;
use figment::providers::{Env, Format, Serialized};
use figment::value::{Dict, Map};
use serde::de::DeserializeOwned;

use super::Config;
use crate::args::Serve;

/// Names of the environment begin with it; two underscores stand for the dot:
/// `PHASESCOPE_SERVE_LISTEN__GRPC`.
const PREFIX: &str = "PHASESCOPE_SERVE_";

/// YAML for figment, whose own reader is no longer kept.
struct Yaml;

impl Format for Yaml {
    type Error = serde_saphyr::Error;
    const NAME: &'static str = "YAML";

    fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Self::Error> {
        serde_saphyr::from_str(text)
    }
}

/// The configuration, checked.
///
/// # Errors
///
/// When a source cannot be read or a value is not what it should be; the text names both.
pub(crate) fn load(args: &Serve) -> Result<Config, String> {
    let mut figment = Figment::from(Serialized::defaults(Config::default()));
    let mut from_file = None;
    if let Some(path) = &args.config {
        let text = read(path)?;
        from_file = Some(path.display().to_string());
        if !is_empty(&text) {
            figment = figment.merge(Yaml::string(&text));
        }
    }
    figment = figment.merge(Env::prefixed(PREFIX).split("__"));
    for set in &args.set {
        figment = figment.merge(Serialized::globals(set_option(set)?));
    }
    for (key, value) in args.named() {
        figment = figment.merge(Serialized::default(key, value));
    }
    let config: Config = figment.extract().map_err(|error| told(error, from_file.as_deref()))?;
    config.check().map_err(|error| match &from_file {
        Some(path) => format!("{path}, environment and flags: {error}"),
        None => error,
    })?;
    Ok(config)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// A file of comments only is one that says nothing.
fn is_empty(text: &str) -> bool {
    text.lines().all(|line| {
        let line = line.trim();
        line.is_empty() || line.starts_with('#') || line == "---"
    })
}

/// `limits.runs=100` as figment has it.
fn set_option(set: &str) -> Result<Dict, String> {
    let Some((key, value)) = set.split_once('=').filter(|(key, _)| !key.is_empty()) else {
        return Err(format!("--set: expected KEY=VALUE, found \"{set}\""));
    };
    // As figment reads a variable of the environment: a number, a flag, else text.
    let Ok(value) = value.parse::<figment::value::Value>();
    let mut value = value;
    let mut keys = key.rsplit('.');
    let mut dict: Dict = Map::new();
    let last = keys.next().unwrap_or(key);
    dict.insert(last.to_owned(), value);
    for key in keys {
        value = dict.into();
        dict = Map::from([(key.to_owned(), value)]);
    }
    Ok(dict)
}

/// One line an error: where, what was expected and what was found.
fn told(error: figment::Error, file: Option<&str>) -> String {
    let lines = error.into_iter().map(|error| {
        let key = error.path.join(".");
        let source = error.metadata.as_ref().map_or("", |metadata| metadata.name.as_ref());
        let from = match (source, file) {
            (source, Some(file)) if source.contains("YAML") => file.to_owned(),
            (source, _) if source.contains("environment") => "the environment".to_owned(),
            ("", Some(file)) => file.to_owned(),
            _ => "the flags".to_owned(),
        };
        let place = if key.is_empty() { from } else { format!("{from}: {key}") };
        format!("{place}: {}", what(&error.kind))
    });
    lines.collect::<Vec<_>>().join("; ")
}

fn what(kind: &Kind) -> String {
    match kind {
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            // What libraries call their types.
            let expected = match expected.as_str() {
                "usize" => "a whole number from 0 on",
                "parsable string" => "a size, as 16MiB",
                "a duration" => "a time, as 10s",
                other => other,
            };
            format!("expected {expected}, found {found}")
        }
        Kind::UnknownField(found, known) => {
            format!("expected one of {}, found {found}", known.join(", "))
        }
        Kind::UnknownVariant(found, known) => {
            format!("expected {}, found {found}", known.join(" or "))
        }
        Kind::MissingField(name) => format!("expected {name}, found none"),
        // Of a library's own words the first line: the others show the file.
        other => other.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only option without a default is what the sample sets.
    #[test]
    fn the_samples_values_are_the_defaults() {
        let sample: Config = Figment::from(Serialized::defaults(Config::default()))
            .merge(Yaml::string(include_str!("../../../serve.yaml")))
            .extract()
            .unwrap_or_else(|error| panic!("{error}"));
        let mut default = Config::default();
        default.next.endpoint.clone_from(&sample.next.endpoint);
        assert_eq!(format!("{sample:?}"), format!("{default:?}"));
    }
}
