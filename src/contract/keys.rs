use std::sync::Arc;

use opentelemetry::Key;

use super::MAX_DEVICES;
use crate::counters::Counters;

/// The attribute names of one device's counters, made once: a span then only counts references.
#[derive(Debug)]
pub(crate) struct DeviceKeys {
    pub(crate) name: Key,
    pub(crate) peak: Key,
    pub(crate) peak_disturbed: Key,
    pub(crate) outside_delta: Key,
    pub(crate) edges: [EdgeKeys; 11],
}

/// The names of one counter.
#[derive(Debug)]
pub(crate) struct EdgeKeys {
    pub(crate) start: Key,
    pub(crate) end: Key,
    pub(crate) delta: Key,
}

impl DeviceKeys {
    /// The names of a span's devices, the first device first.
    pub(crate) fn all() -> [Self; MAX_DEVICES] {
        std::array::from_fn(Self::of)
    }

    fn of(place: usize) -> Self {
        let prefix = match place {
            0 => "phasescope".to_owned(),
            _ => format!("phasescope.device{place}"),
        };
        let key = |rest: &str| Key::from(Arc::<str>::from(format!("{prefix}.{rest}")));
        Self {
            name: key("device.name"),
            peak: key("allocated.peak"),
            peak_disturbed: key("allocated.peak_disturbed"),
            outside_delta: key("allocated.outside_delta"),
            edges: Counters::default().edge_values().map(|(name, _)| EdgeKeys {
                start: key(&format!("{name}.start")),
                end: key(&format!("{name}.end")),
                delta: key(&format!("{name}.delta")),
            }),
        }
    }
}
