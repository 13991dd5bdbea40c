use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use subtle::ConstantTimeEq;
use tonic::Status;

use super::body::drain;
use crate::serve::metrics::Counts;

/// The bearer token. It is never shown.
#[derive(Clone)]
pub(crate) struct Token(Arc<str>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    pub(crate) fn new(token: &str) -> Self {
        Self(token.into())
    }

    fn allows(&self, request: &Request) -> bool {
        let value = request.headers().get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
        // The scheme is compared without regard to case, as HTTP has it.
        let given = value.and_then(|value| {
            let (scheme, token) = value.split_at_checked("bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
        });
        given.is_some_and(|given| bool::from(given.ct_eq(self.0.as_bytes())))
    }
}

/// How a port refuses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    Grpc,
    Http,
}

/// Puts the token before everything behind a port; without a token everybody may come.
pub(crate) fn guarded(
    router: Router,
    token: Option<&Token>,
    refusal: Refusal,
    counts: &Arc<Counts>,
) -> Router {
    let Some(token) = token else { return router };
    let state = (token.clone(), refusal, counts.clone());
    router.layer(middleware::from_fn_with_state(state, check))
}

async fn check(
    State((token, refusal, counts)): State<(Token, Refusal, Arc<Counts>)>,
    request: Request,
    next: Next,
) -> Response {
    if token.allows(&request) {
        return next.run(request).await;
    }
    counts.unauthenticated();
    let expected = "expected the header authorization with the bearer token";
    match refusal {
        Refusal::Grpc => Status::unauthenticated(expected).into_http(),
        Refusal::Http => {
            drain(request.into_body()).await;
            let challenge = [(WWW_AUTHENTICATE, "Bearer")];
            (StatusCode::UNAUTHORIZED, challenge, format!("{expected}\n")).into_response()
        }
    }
}
