//! Chromium without a window, driven over its DevTools protocol: a page, its console, keys, and
//! pictures.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// Time limit of every wait before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);
const PROGRAM: &str = "chromium";
/// Where a home has the browser's profile.
pub const PROFILE: &str = "profile";

/// A browser with one page.
pub struct Browser {
    child: Child,
    _home: tempfile::TempDir,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    session: Option<String>,
    last: u64,
    /// Errors of the page: of its console, its scripts, its policy and what it loads.
    pub complaints: Vec<String>,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// Starts one. `None`, with a message, if none is installed.
    pub fn start() -> Option<Self> {
        Self::start_at(tempfile::tempdir().expect("a temporary folder"))
    }

    /// The same for a user with this home; the profile is in [`PROFILE`] of it.
    pub fn start_at(home: tempfile::TempDir) -> Option<Self> {
        let child = Command::new(PROGRAM)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--remote-debugging-port=0", "--hide-scrollbars", "--disable-extensions"])
            .args(["--force-device-scale-factor=1", "--font-render-hinting=none"])
            .arg(format!("--user-data-dir={}", home.path().join(PROFILE).display()))
            .env("HOME", home.path())
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            eprintln!("{PROGRAM} is missing: nothing was looked at");
            return None;
        };
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("listening on ").map(|(_, at)| at.trim().to_owned()))
            .expect("Chromium says where it listens");
        // The browser stops if its output is not read.
        std::thread::spawn(move || lines.for_each(drop));
        let (socket, _) = tungstenite::connect(address).expect("it listens there");
        let mut browser =
            Self { child, _home: home, socket, session: None, last: 0, complaints: Vec::new() };
        browser.open_page();
        Some(browser)
    }

    fn open_page(&mut self) {
        let page = self.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let how = json!({ "targetId": page["targetId"], "flatten": true });
        let session = self.ask("Target.attachToTarget", how)["sessionId"].clone();
        self.session = Some(session.as_str().expect("a session").to_owned());
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            self.ask(domain, json!({}));
        }
    }

    /// One command; its result.
    pub fn ask(&mut self, method: &str, parameters: Value) -> Value {
        let result = self.try_to_ask(method, parameters);
        result.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// One command; its result, or what the browser says against it.
    fn try_to_ask(&mut self, method: &str, parameters: Value) -> Result<Value, Value> {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(message.to_string())).expect("the browser is there");
        loop {
            let reply = self.read();
            if reply["id"] == json!(self.last) {
                let error = reply["error"].clone();
                return if error.is_null() { Ok(reply["result"].clone()) } else { Err(error) };
            }
        }
    }

    fn read(&mut self) -> Value {
        loop {
            let Message::Text(text) = self.socket.read().expect("the browser is there") else {
                continue;
            };
            let message: Value = serde_json::from_str(&text).expect("JSON");
            let said = &message["params"];
            match message["method"].as_str() {
                Some("Runtime.consoleAPICalled")
                    if ["error", "warning", "assert"]
                        .contains(&said["type"].as_str().unwrap_or_default()) =>
                {
                    self.complaints.push(said["args"].to_string());
                }
                Some("Runtime.exceptionThrown") => {
                    self.complaints.push(said["exceptionDetails"].to_string());
                }
                Some("Log.entryAdded") if said["entry"]["level"] != "verbose" => {
                    self.complaints.push(said["entry"].to_string());
                }
                _ => {}
            }
            return message;
        }
    }

    /// Sets the size of the window, and whether the system prefers dark colours.
    pub fn set_screen(&mut self, width: u32, height: u32, dark: bool) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.ask("Emulation.setDeviceMetricsOverride", size);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.ask("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Goes to an address.
    pub fn open(&mut self, url: &str) {
        let gone = self.ask("Page.navigate", json!({ "url": url }));
        assert!(gone["errorText"].is_null(), "{url}: {}", gone["errorText"]);
    }

    /// The value of an expression in the page's scripts: in those of the next page, if the browser goes on to it meanwhile.
    pub fn eval(&mut self, expression: &str) -> Value {
        let how = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = loop {
            match self.try_to_ask("Runtime.evaluate", how.clone()) {
                Ok(result) => break result,
                Err(error) => {
                    let has_gone_on = error["message"] == "Inspected target navigated or closed";
                    assert!(has_gone_on, "{expression}: {error}");
                }
            }
        };
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true; returns how long that took.
    pub fn until(&mut self, expression: &str) -> Duration {
        let began = Instant::now();
        while self.eval(expression) != json!(true) {
            assert!(began.elapsed() < PATIENCE, "it never was: {expression}\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
        began.elapsed()
    }

    /// All visible text.
    pub fn text(&mut self) -> String {
        self.eval("document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Presses a key, as `Tab`, `ArrowRight` or `a`.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "End" => 35,
            "Home" => 36,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => 0,
        };
        let text = match key {
            "Enter" => Some("\r"),
            _ if code == 0 => Some(key),
            _ => None,
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code,
            });
            if let Some(text) = text.filter(|_| kind == "keyDown") {
                event["text"] = json!(text);
            }
            self.ask("Input.dispatchKeyEvent", event);
        }
    }

    /// A picture of the whole page, PNG.
    pub fn picture(&mut self) -> Vec<u8> {
        let how = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = self.ask("Page.captureScreenshot", how);
        let text = picture["data"].as_str().expect("base64");
        base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
    }
}
