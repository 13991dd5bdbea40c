//! A program that pretends to train: the phases of a loop on a scripted device, and the ends that a
//! training run can come to.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use phasescope::counters::scripted::Scripted;
use phasescope::export::{Export, Sampling};
use phasescope::layer::Guard;
use phasescope::report::{self, Report};
use phasescope::{phase, step};

/// Bytes of the model.
const PARAMETERS: u64 = 32 << 20;
/// Bytes of one forward's activations.
const ACTIVATIONS: u64 = 48 << 20;

#[derive(Debug, Parser)]
struct Args {
    #[arg(long, default_value_t = 8)]
    steps: u64,
    /// Microseconds of work in every phase.
    #[arg(long, default_value_t = 0)]
    work: u64,
    /// From this step on the activations are kept.
    #[arg(long)]
    leak_from: Option<u64>,
    /// How it ends, in the forward of the last step.
    #[arg(long, value_enum, default_value_t = End::Return)]
    end: End,
    /// Waits before that until so many spans have been exported.
    #[arg(long)]
    after_exported: Option<u64>,
    /// Prints every phase when it has finished.
    #[arg(long)]
    announce: bool,
    /// Prints the seconds that the steps took and the resident memory, halfway and at the end.
    #[arg(long)]
    measure: bool,
    #[arg(long)]
    ring: Option<PathBuf>,
    #[arg(long)]
    report: Option<PathBuf>,
    /// Exports to a file.
    #[arg(long)]
    spans: Option<PathBuf>,
    /// Exports every step.
    #[arg(long)]
    all_steps: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum End {
    Return,
    Panic,
    OutOfMemory,
    Exit,
    /// Ends with `exit` too, after `Guard::shutdown`.
    ShutdownExit,
    Abort,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let device = Arc::new(Scripted::new("cuda:0"));
    let mut builder = phasescope::builder().source(device.clone());
    if let Some(folder) = &args.ring {
        builder = builder.ring_in(folder);
    }
    if args.report.is_some() {
        builder = builder.keep_records();
    }
    let export = match &args.spans {
        Some(path) => Some(Export::to_file(path)?),
        None if args.all_steps => Export::from_env()?,
        None => None,
    };
    if let Some(export) = export {
        let sampling = if args.all_steps { Sampling::all() } else { Sampling::default() };
        builder = builder.export(export.sampling(sampling));
    }
    let guard = builder.install()?;
    train(&args, &device, &guard);
    if let Some(path) = &args.report {
        report::write(&Report::of(guard.identity(), &guard.series()), path, false)?;
    }
    Ok(())
}

fn train(args: &Args, device: &Scripted, guard: &Guard) {
    let announce = |step: Option<u64>, phase: &str| {
        if args.announce {
            let step = step.map_or_else(|| "before".to_owned(), |step| step.to_string());
            let mut out = std::io::stdout().lock();
            let told = writeln!(out, "{step} {phase}").and_then(|()| out.flush());
            told.unwrap_or_else(|error| panic!("{error}"));
        }
    };
    phase!(model).in_scope(|| device.allocate(PARAMETERS));
    announce(None, "model");
    let begin = Instant::now();
    for number in 0..args.steps {
        let _step = step!(number).entered();
        let leaks = args.leak_from.is_some_and(|from| number >= from);
        phase!(forward).in_scope(|| {
            device.allocate(ACTIVATIONS);
            work(args.work);
            if number + 1 == args.steps {
                end(args, guard);
            }
        });
        announce(Some(number), "forward");
        phase!(backward).in_scope(|| {
            work(args.work);
            device.allocate(PARAMETERS);
            device.free(if leaks { 0 } else { ACTIVATIONS });
        });
        announce(Some(number), "backward");
        phase!(optimizer_step).in_scope(|| work(args.work));
        announce(Some(number), "optimizer_step");
        phase!(clear_gradients).in_scope(|| device.free(PARAMETERS));
        announce(Some(number), "clear_gradients");
        if args.measure && (number + 1 == args.steps / 2 || number + 1 == args.steps) {
            println!("{} {}", begin.elapsed().as_secs_f64(), resident());
        }
    }
}

/// Keeps the thread busy, as a training loop is.
fn work(microseconds: u64) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_micros(microseconds) {
        std::hint::spin_loop();
    }
}

fn end(args: &Args, guard: &Guard) {
    if let Some(count) = args.after_exported {
        while guard.span_counts().is_none_or(|counts| counts.exported < count) {
            std::thread::yield_now();
        }
    }
    match args.end {
        End::Return => {}
        End::Panic => panic!("the labels do not fit"),
        End::OutOfMemory => {
            panic!("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has ...")
        }
        End::Exit => std::process::exit(7),
        End::ShutdownExit => {
            guard.shutdown();
            std::process::exit(7)
        }
        End::Abort => std::process::abort(),
    }
}

/// Resident bytes of this process.
fn resident() -> u64 {
    use phasescope::counters::{CounterSource, host::HostMemory};
    HostMemory::new().read().host_rss.unwrap_or_default()
}
