use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// What both servers write when they have begun to listen.
const READY: &str = "Everything is ready";
/// How long a server may take for it.
const START: Duration = Duration::from_secs(60);

/// A server that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Its configuration, and what it writes.
    pub(crate) folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server that `make services` has built, with this configuration. `None` where it was
    /// not built, with a line that says so; where servers are required that is a failure.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub(crate) fn start(name: &str, configure: impl FnOnce(&Path) -> String) -> Option<Self> {
        let program = built("services").join(name);
        if !program.exists() {
            skipped(&program, "make services");
            return None;
        }
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let config = folder.path().join("config.yaml");
        std::fs::write(&config, configure(folder.path())).unwrap_or_else(|error| panic!("{error}"));
        let mut child = Command::new(&program)
            .arg("--config")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let log = folder.path().join("log");
        let stderr = child.stderr.take().unwrap_or_else(|| panic!("no pipe"));
        let (ready, wait) = mpsc::channel();
        thread::spawn({
            let mut log = File::create(&log).unwrap_or_else(|error| panic!("{error}"));
            move || {
                // Read to the end, so that the server never waits for a full pipe.
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let _ = writeln!(log, "{line}");
                    if line.contains(READY) {
                        let _ = ready.send(());
                    }
                }
            }
        });
        let server = Self { child, folder };
        wait.recv_timeout(START).unwrap_or_else(|_| {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            panic!("{name} did not start: {log}")
        });
        Some(server)
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&mut self) {
        // One that is gone already is killed, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says that a test is skipped since something was not built; where servers are required that is a
/// failure.
pub(crate) fn skipped(missing: &Path, command: &str) {
    let missing = missing.display();
    let required = std::env::var_os("PHASESCOPE_REQUIRE_SERVICES").is_some();
    assert!(!required, "expected {missing}: run `{command}`");
    // Written past the test harness, which would swallow it.
    let test = thread::current().name().unwrap_or("a test").to_owned();
    let line = format!("SKIPPED {test}: no {missing}, see `{command}`\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A folder of the target folder in which this test was built.
pub(crate) fn built(folder: &str) -> PathBuf {
    let mut target = std::env::current_exe().unwrap_or_else(|error| panic!("{error}"));
    // target/<profile>/deps/<test>, or target/<profile>/<program>
    target.pop();
    if target.ends_with("deps") {
        target.pop();
    }
    target.pop();
    target.join(folder)
}

/// An endpoint of this machine that is down: no test and no server takes so low a port.
pub const DOWN: &str = "http://127.0.0.1:1";

/// Where [`free_port`] looks: below the ports that systems give out by themselves, or a client's
/// connection or another server on port 0 could take the port before its server listens on it.
const PORTS: std::ops::Range<u16> = 10_000..30_000;

/// A port of this machine that nobody listens on, and that no other call in this process returns.
///
/// # Panics
///
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let ports = u32::from(PORTS.end - PORTS.start);
    // Programs that run at the same time look in different places.
    let first = std::process::id().wrapping_mul(97);
    for _ in 0..ports {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let offset = first.wrapping_add(call) % ports;
        let port = PORTS.start + u16::try_from(offset).unwrap_or_default();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port in {PORTS:?}")
}
