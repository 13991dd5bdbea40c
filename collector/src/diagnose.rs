use crate::Answer;
use crate::args::{Diagnose, Format};
use crate::judge;
use crate::render;

/// Judges every file; one that cannot be read is told, and the others are judged all the same.
pub(crate) fn run(args: &Diagnose) -> Answer {
    let mut judged = Vec::new();
    let mut errors = Vec::new();
    for path in &args.files {
        match judge::file(path) {
            Ok(ranks) => judged.extend(ranks),
            Err(error) => errors.push(error),
        }
    }
    let gate = args.fail_on.is_some_and(|gate| judged.iter().any(|judged| judged.meets(gate)));
    let text = match args.format {
        Format::Text => judged.iter().map(render::text).collect::<Vec<_>>().join("\n"),
        Format::Json => match serde_json::to_string_pretty(&judged) {
            Ok(text) => text + "\n",
            Err(error) => {
                errors.push(error.to_string());
                String::new()
            }
        },
    };
    Answer { text, errors, gate }
}
