//! OTLP in, by gRPC and HTTP.

mod auth;
mod body;
mod grpc;
mod http;
mod json;

pub(crate) use auth::{Refusal, Token, guarded};
pub(crate) use grpc::router as grpc_router;
pub(crate) use http::router as http_router;
