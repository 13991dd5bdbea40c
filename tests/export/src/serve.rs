use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long it may take to be ready.
const START: Duration = Duration::from_secs(30);

/// A `phasescope serve`, on free ports of this machine unless told otherwise.
#[derive(Debug)]
pub struct Serve {
    child: Child,
    log: Arc<Mutex<Vec<Value>>>,
    reader: Option<thread::JoinHandle<()>>,
    /// OTLP over gRPC.
    pub grpc: String,
    /// OTLP over HTTP.
    pub http: String,
    /// Health, runs and metrics.
    pub api: String,
}

impl Serve {
    /// The command, for a test that needs no server.
    ///
    /// # Panics
    ///
    /// When it was not built.
    #[must_use]
    pub fn command() -> Command {
        // target/<profile>/deps/<test>
        let mut path = std::env::current_exe().unwrap_or_else(|error| panic!("{error}"));
        path.pop();
        if !path.join("phasescope").exists() {
            path.pop();
        }
        let path = path.join("phasescope");
        assert!(path.exists(), "expected {}: run `make test`", path.display());
        let mut command = Command::new(path);
        command.arg("serve");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PHASESCOPE_SERVE_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// Starts one before a next hop.
    #[must_use]
    pub fn before(next: &str) -> Self {
        Self::with(next, &[])
    }

    /// Starts one with options.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn with(next: &str, options: &[&str]) -> Self {
        Self::try_with(next, options).unwrap_or_else(|log| panic!("it did not start: {log:?}"))
    }

    /// Starts one with options, or says what it wrote.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn try_with(next: &str, options: &[&str]) -> Result<Self, Vec<Value>> {
        let mut command = Self::command();
        for name in ["grpc", "http", "api"] {
            let flag = format!("--listen-{name}");
            if !options.contains(&flag.as_str()) {
                command.args([&flag, "127.0.0.1:0"]);
            }
        }
        let child = command
            .args(["--next-endpoint", next, "--set", "log.format=json"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{error}"));
        let stderr = child.stderr.take().unwrap_or_else(|| panic!("no pipe"));
        let log = Arc::new(Mutex::new(Vec::new()));
        let (ready, wait) = mpsc::channel();
        let reader = thread::spawn({
            let log = log.clone();
            move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                    if line["message"] == "ready" {
                        let _ = ready.send(line.clone());
                    }
                    log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                }
            }
        });
        let scheme =
            if options.iter().any(|option| option.starts_with("tls.")) { "https" } else { "http" };
        let Ok(line) = wait.recv_timeout(START) else {
            let _ = child.kill();
            let _ = child.wait();
            let _ = reader.join();
            return Err(log.lock().unwrap_or_else(PoisonError::into_inner).clone());
        };
        let address =
            |name: &str| format!("{scheme}://{}", line[name].as_str().unwrap_or_default());
        Ok(Self {
            grpc: address("grpc"),
            http: address("http"),
            api: address("api"),
            child,
            log,
            reader: Some(reader),
        })
    }

    /// The lines of its log so far.
    #[must_use]
    pub fn log(&self) -> Vec<Value> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        // One that is gone already is killed, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, as an orchestrator does.
    ///
    /// # Panics
    ///
    /// When there is no such process.
    pub fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits for its end: the exit status; `None` when it was killed.
    ///
    /// # Panics
    ///
    /// When it cannot be waited for.
    pub fn wait(&mut self) -> Option<i32> {
        let status = self.child.wait().unwrap_or_else(|error| panic!("{error}"));
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        status.code()
    }

    /// Its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.unwrap_or_else(|| panic!("no process"))
    }

    /// A JSON answer of its API.
    ///
    /// # Panics
    ///
    /// When it does not answer so.
    #[must_use]
    pub fn get(&self, path: &str) -> Value {
        let url = format!("{}{path}", self.api);
        let answer = reqwest::blocking::get(&url).and_then(reqwest::blocking::Response::json);
        answer.unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    /// What Prometheus is told.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    #[must_use]
    pub fn metrics(&self) -> String {
        let url = format!("{}/metrics", self.api);
        let answer = reqwest::blocking::get(&url).and_then(reqwest::blocking::Response::text);
        answer.unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    /// The sum of a metric's samples whose labels contain all these.
    #[must_use]
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.metrics();
        let samples = text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Waits until something about it holds.
    ///
    /// # Panics
    ///
    /// When it does not come to hold in half a minute.
    pub fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !holds(self) {
            assert!(begin.elapsed() < START, "{what}: not within {START:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The most memory that it has had resident, in bytes.
    #[must_use]
    pub fn peak_memory(&self) -> u64 {
        peak_memory(self.child.id())
    }

    /// The processor time that it has used.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        cpu(self.child.id())
    }

    /// Whether it is still there.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The most memory that a process has had resident, in bytes.
///
/// # Panics
///
/// When there is no such process.
#[must_use]
pub fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.unwrap_or_else(|error| panic!("{error}"));
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    1024 * kib.unwrap_or_else(|| panic!("no VmHWM"))
}

/// The processor time that a process has used.
///
/// # Panics
///
/// When there is no such process.
#[must_use]
pub fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    let stat = stat.unwrap_or_else(|error| panic!("{error}"));
    // After the name in brackets, which may hold anything: user and system time are 12th and 13th.
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = rest
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum();
    Duration::from_millis(1000 * ticks / rustix::param::clock_ticks_per_second())
}
