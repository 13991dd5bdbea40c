//! A program that has a subscriber already. A file of its own, since that is set once a process.

use phasescope::export::{Export, Protocol};
use phasescope_export_tests::DOWN;

#[test]
fn install_is_refused_inside_an_async_runtime_as_elsewhere() {
    let own = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    own.unwrap_or_else(|error| panic!("{error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    for protocol in [Protocol::Grpc, Protocol::HttpProtobuf] {
        let refused = runtime.block_on(async {
            let export = Export::to_endpoint(DOWN, protocol);
            let export = export.unwrap_or_else(|error| panic!("{error}"));
            phasescope::builder().export(export).install().map(|_| ())
        });
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("a global tracing subscriber, found one"), "{error}");
    }
}
