//! The binary, running on free ports.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A broker that ends with the test.
pub struct Broker {
    process: Child,
    /// Where it speaks AMQP.
    #[allow(dead_code, reason = "not every test speaks it")]
    pub port: u16,
    /// Where it speaks OpenWire.
    #[allow(dead_code, reason = "not every test speaks it")]
    pub openwire: u16,
    /// Where it speaks HTTP.
    #[allow(dead_code, reason = "not every test speaks it")]
    pub http: u16,
    directory: TempDir,
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Broker {
    /// One in a directory of its own.
    pub fn start() -> Broker {
        Broker::start_in(tempfile::tempdir().unwrap(), "")
    }

    /// One in this directory, which its configuration may name files of.
    pub fn start_in(directory: TempDir, config: &str) -> Broker {
        // A port that is looked for here another broker may take before this one does.
        let ports = "openwire = 0\namqp = 0\namqp_websocket = 0\nhttp = 0";
        let of_tls = match config.contains("[tls]") {
            true => "openwire_tls = 0\namqp_tls = 0\namqp_websocket_tls = 0",
            false => "",
        };
        let text = format!("{config}\n[ports]\n{ports}\n{of_tls}\n");
        fs::write(directory.path().join("postroad.toml"), text).unwrap();
        let (process, [port, openwire, http]) = serve(&directory);
        Broker { process, port, openwire, http, directory }
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Asks it to end.
    #[allow(dead_code, reason = "not every test stops it")]
    pub fn stop(&self) {
        let process = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    }

    /// Its data directory.
    #[allow(dead_code, reason = "not every test looks into it")]
    pub fn data(&self) -> std::path::PathBuf {
        self.directory.path().join("data")
    }

    /// A word with its control socket.
    #[allow(dead_code, reason = "not every test gives it commands")]
    pub fn control(&self) -> UnixStream {
        UnixStream::connect(self.directory.path().join("data/control.sock")).unwrap()
    }

    /// How many descriptors it may have from now on; as many as before, if there is no number.
    #[allow(dead_code, reason = "not every test wants it to run out of them")]
    pub fn limit_descriptors(&self, max: Option<u64>) {
        let process = rustix::process::Pid::from_child(&self.process);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let limit = rustix::process::Rlimit { current: max.or(limit.maximum), ..limit };
        rustix::process::prlimit(Some(process), rustix::process::Resource::Nofile, limit).unwrap();
    }

    /// Kills it, and starts it again from its files.
    #[allow(dead_code, reason = "not every test restarts it")]
    pub fn restart(&mut self) {
        self.kill();
        (self.process, [self.port, self.openwire, self.http]) = serve(&self.directory);
    }
}

/// The process, and its ports for AMQP, OpenWire and HTTP.
fn serve(directory: &TempDir) -> (Child, [u16; 3]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postroad"));
    command.arg("serve").arg("--config").arg(directory.path().join("postroad.toml"));
    command.arg("--data").arg(directory.path().join("data")).env_remove("POSTROAD_LOG");
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let said: Vec<String> = lines.map(Result::unwrap).take_while(|line| line != "postroad ready").collect();
    let port = |scheme: &str| {
        let port = said.iter().find(|line| line.contains(scheme)).and_then(|line| line.rsplit(':').next());
        port.expect("the broker ended before it was ready").parse().unwrap()
    };
    (process, ["amqp://", "tcp://", "http://"].map(port))
}
