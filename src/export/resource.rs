use std::env;

use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;
use uuid::Uuid;

use super::Export;
use crate::contract;
use crate::phase::RunIdentity;

/// Who sends: the environment's attributes, then the program's own, and for the rest a name, one id
/// for this process, and which run and rank it is.
pub(super) fn resource(export: &Export, identity: &RunIdentity) -> Resource {
    let found = Resource::builder().build();
    let known = |key: &'static str| found.get(&Key::from_static_str(key));
    let mut attributes = vec![
        KeyValue::new(contract::RUN_ID, identity.run_id.clone()),
        KeyValue::new(contract::RANK, i64::from(identity.rank)),
        KeyValue::new(contract::WORLD_SIZE, i64::from(identity.world_size)),
        KeyValue::new(contract::PROCESS_PID, i64::from(std::process::id())),
    ];
    if known(contract::SERVICE_INSTANCE_ID).is_none() {
        let id = Uuid::new_v4().to_string();
        attributes.push(KeyValue::new(contract::SERVICE_INSTANCE_ID, id));
    }
    let unnamed = known(contract::SERVICE_NAME)
        .is_none_or(|name| name.as_str().starts_with("unknown_service"));
    let name = export.service_name.clone().or_else(|| unnamed.then(program));
    attributes.extend(name.map(|name| KeyValue::new(contract::SERVICE_NAME, name)));
    attributes.extend(export.resource.iter().cloned());
    Resource::builder().with_attributes(attributes).build()
}

fn program() -> String {
    let name = env::current_exe().ok();
    let name = name.as_deref().and_then(|path| path.file_name());
    name.map_or_else(|| "phasescope".to_owned(), |name| name.to_string_lossy().into_owned())
}
