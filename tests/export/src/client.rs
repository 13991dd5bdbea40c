use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::runtime::Runtime;
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// A client of OTLP over gRPC that the test waits for.
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
    client: TraceServiceClient<Channel>,
}

impl Client {
    /// Connects when it is used, and again when the connection is gone.
    ///
    /// # Panics
    ///
    /// When the address is none.
    #[must_use]
    pub fn new(address: &str, gzip: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap_or_else(|error| panic!("{error}"));
        let endpoint = Endpoint::from_shared(address.to_owned());
        let endpoint = endpoint.unwrap_or_else(|error| panic!("{error}"));
        let channel = runtime
            .block_on(async { endpoint.connect_timeout(Duration::from_secs(2)).connect_lazy() });
        let mut client = TraceServiceClient::new(channel).max_encoding_message_size(usize::MAX);
        if gzip {
            client = client.send_compressed(CompressionEncoding::Gzip);
        }
        Self { runtime, client }
    }

    /// Sends a request once.
    ///
    /// # Errors
    ///
    /// When it was not taken.
    pub fn export(
        &mut self,
        request: ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, Status> {
        let sent = self.runtime.block_on(async {
            let sending = self.client.export(request);
            tokio::time::timeout(Duration::from_secs(30), sending).await
        });
        match sent {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded("no answer")),
        }
    }

    /// Sends a request until it is taken, as OTLP has it; how many tries it took.
    ///
    /// # Panics
    ///
    /// When it is refused for good, or not taken in a thousand tries.
    pub fn deliver(&mut self, request: &ExportTraceServiceRequest) -> usize {
        for tries in 1..=1000 {
            match self.export(request.clone()) {
                Ok(answer) => {
                    let rejected = answer.partial_success.map_or(0, |part| part.rejected_spans);
                    assert_eq!(rejected, 0);
                    return tries;
                }
                // What a connection that breaks looks like, beside what OTLP says may be retried.
                Err(status)
                    if matches!(
                        status.code(),
                        Code::Unavailable
                            | Code::DeadlineExceeded
                            | Code::Cancelled
                            | Code::Unknown
                            | Code::Internal
                    ) => {}
                Err(status) => panic!("refused for good: {status}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("not taken in a thousand tries")
    }
}
