/// A span of a training phase.
///
/// The first word is the phase; further `field = value` pairs are recorded as they are, after two that
/// are reserved: `phasescope.step = N` for a phase that stands in no [`step!`](crate::step!), and
/// `phasescope.input_elements = N` for the size of the batch. For `other`, a name says what it is.
/// The phase is measured from the first time the span is entered until the last time it is left.
///
/// # Examples
///
/// ```
/// # fn forward() -> f64 { 0.5 }
/// let loss = phasescope::phase!(forward).in_scope(|| forward());
///
/// let _guard = phasescope::phase!(input, phasescope.input_elements = 512_u64).entered();
/// let _nested = phasescope::phase!(other, "augment").entered();
/// # let _ = loss;
/// ```
#[macro_export]
macro_rules! phase {
    (other, $name:literal $(, $($fields:tt)*)?) => {
        $crate::__phase!(($name, "other") [] $($($fields)*)?)
    };
    ($phase:ident $(, $($fields:tt)*)?) => {{
        // A word that is no phase fails here, at compile time.
        const PHASE: &str = $crate::__private::phase_names::$phase;
        let _ = PHASE;
        $crate::__phase!((stringify!($phase), stringify!($phase)) [] $($($fields)*)?)
    }};
}

/// Makes the reserved numbers signed: tracing-opentelemetry writes unsigned ones as text.
#[doc(hidden)]
#[macro_export]
macro_rules! __phase {
    ($names:tt [$($done:tt)*] phasescope.step = $number:expr $(, $($rest:tt)*)?) => {
        $crate::__phase!(
            $names
            [$($done)* phasescope.step = $crate::__private::Integer::signed($number),]
            $($($rest)*)?
        )
    };
    ($names:tt [$($done:tt)*] phasescope.input_elements = $number:expr $(, $($rest:tt)*)?) => {
        $crate::__phase!(
            $names
            [$($done)* phasescope.input_elements = $crate::__private::Integer::signed($number),]
            $($($rest)*)?
        )
    };
    (($name:expr, $phase:expr) [$($done:tt)*] $($rest:tt)*) => {
        $crate::__private::tracing::info_span!(
            $name, phasescope.phase = $phase, $($done)* $($rest)*
        )
    };
}

/// A span of one training step, counted from 0, which holds the step's phases.
///
/// Without a [`run!`](crate::run!) around it a step is a trace of its own. Of a step with gradient
/// accumulation say `phasescope.optimizer_stepped = false` for the micro-steps whose optimizer does
/// not run.
///
/// # Examples
///
/// ```
/// for step in 0..3_u64 {
///     let _step = phasescope::step!(step).entered();
///     phasescope::phase!(forward).in_scope(|| {});
/// }
/// ```
#[macro_export]
macro_rules! step {
    ($step:expr $(, $($fields:tt)*)?) => {
        $crate::__private::tracing::info_span!(
            "step",
            phasescope.step = $crate::__private::Integer::signed($step)
            $(, $($fields)*)?
        )
    };
}

/// A span around a whole run: with it, a short run is one trace.
///
/// # Examples
///
/// ```
/// let _run = phasescope::run!("nightly-42").entered();
/// ```
#[macro_export]
macro_rules! run {
    ($run_id:expr $(, $($fields:tt)*)?) => {
        $crate::__private::tracing::info_span!("run", phasescope.run_id = $run_id $(, $($fields)*)?)
    };
}
