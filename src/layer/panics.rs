//! What a panic or an error event says, so that a failed phase can tell why.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::panic::PanicHookInfo;
use std::sync::Once;

use tracing::Event;
use tracing::field::{Field, Visit};

use crate::phase::Outcome;

thread_local! {
    static MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Puts a hook before the present one that remembers the message of a panic for the phases it
/// unwinds through. Once a process.
pub(super) fn remember_messages() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // A thread whose locals are gone has no phase left to tell.
            let _ = MESSAGE.try_with(|message| *message.borrow_mut() = text(info));
            next(info);
        }));
    });
}

fn text(info: &PanicHookInfo<'_>) -> Option<String> {
    info.payload_as_str().map(str::to_owned)
}

/// The outcome of a phase that unwinds now.
pub(super) fn outcome() -> Outcome {
    let message = MESSAGE.try_with(|message| message.borrow().clone()).ok().flatten();
    match message.as_deref().map(Outcome::from_error) {
        Some(Outcome::OutOfMemory(oom)) => Outcome::OutOfMemory(oom),
        _ => Outcome::Panicked(message),
    }
}

/// The outcome of a phase in which an error event was recorded.
pub(super) fn outcome_of(event: &Event<'_>) -> Outcome {
    let mut text = Text(String::new());
    event.record(&mut text);
    Outcome::from_error(&text.0)
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if !self.0.is_empty() {
            self.0.push_str(", ");
        }
        if field.name() != "message" {
            self.0.push_str(field.name());
            self.0.push_str(": ");
        }
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{value:?}");
    }
}
