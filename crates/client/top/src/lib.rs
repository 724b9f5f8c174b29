//! `snicctl top`: a live screen of regions, DAGs, tenants and events; at a fleet's endpoint of its hosts, and of what is
//! on each. The state of a screen (`model`, `hosts`) and its rendering (`draw`) need no terminal; this module has the
//! terminal.

mod actions;
mod draw;
mod feed;
mod hosts;
mod model;
mod pace;
mod panels;
mod prompt;
mod rows;

use std::io::{self, IsTerminal as _, Write as _};
use std::pin::{Pin, pin};
use std::time::{Duration, SystemTime};

use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, EventStream, KeyEvent, KeyEventKind};
use ratatui::{Frame, Terminal};
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt as _;

use draw::Theme;
use hosts::{FleetFeed, HostsModel};
use model::{Feed, Model};
use prompt::{KeyOutcome, Prompt};
use snic_client::output::{Style, WIDTH_MIN, wants_colour};
use snic_client::{Client, Failure};

/// Interval between redraws without a change, for the clock and remaining times.
const REDRAW: Duration = Duration::from_millis(250);
/// Changes that may wait to be drawn. Further ones arrive with the next snapshot.
const FEEDS_WAITING_MAX: usize = 64;
/// Size of the screen that `--once` prints, in columns and lines.
const SIZE: (u16, u16) = (80, 24);

/// Request to the server, until it has answered.
type PendingRequest<'a> = Pin<Box<dyn Future<Output = Result<String, Failure>> + 'a>>;

/// A screen: updates and keys in, what is shown out.
trait Screen {
    /// Data that is read for it.
    type Feed;

    fn take(&mut self, feed: Self::Feed, now: SystemTime);
    fn press(&mut self, key: KeyEvent) -> KeyOutcome;
    fn prompt(&mut self) -> &mut Prompt;
    fn draw(&self, frame: &mut Frame<'_>, theme: Theme);
}

impl Screen for Model {
    type Feed = Feed;

    fn take(&mut self, feed: Feed, now: SystemTime) {
        self.take(feed, now);
    }

    fn press(&mut self, key: KeyEvent) -> KeyOutcome {
        self.press(key)
    }

    fn prompt(&mut self) -> &mut Prompt {
        &mut self.prompt
    }

    fn draw(&self, frame: &mut Frame<'_>, theme: Theme) {
        draw::draw(frame, self, theme);
    }
}

impl Screen for HostsModel {
    type Feed = FleetFeed;

    fn take(&mut self, feed: FleetFeed, now: SystemTime) {
        self.take(feed, now);
    }

    fn press(&mut self, key: KeyEvent) -> KeyOutcome {
        self.press(key)
    }

    fn prompt(&mut self) -> &mut Prompt {
        &mut self.prompt
    }

    fn draw(&self, frame: &mut Frame<'_>, theme: Theme) {
        hosts::draw(frame, self, theme);
    }
}

/// Why a screen is left.
enum ScreenEnd {
    /// The user quits.
    Quit,
    /// The user chose a host.
    Open,
    /// The user goes back to the hosts.
    Back,
    /// There is nothing to read here: a fleet answers, not a daemon.
    Fleet,
}

/// Shows the screen until the user quits.
///
/// # Errors
/// [`Failure`] if there is no terminal or it fails. If the server does not answer, the screen says so and
/// the request is retried.
pub async fn run(client: &Client, interval: Duration) -> Result<(), Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "`top` needs a terminal",
            "print one screen with `snicctl top --once`",
        ));
    }
    let is_colour = wants_colour(&io::stdout());
    // Restores the terminal even after a panic.
    let terminal = ratatui::try_init().map_err(Failure::Output)?;
    let mut screens = Screens { terminal, keys: EventStream::new(), interval, is_colour };
    let result = match screens.daemon(client, false).await {
        Ok(ScreenEnd::Fleet) => screens.fleet(client).await,
        ended => ended.map(|_| ()),
    };
    ratatui::restore();
    result
}

/// The terminal with one screen after the other.
struct Screens {
    terminal: ratatui::DefaultTerminal,
    keys: EventStream,
    interval: Duration,
    is_colour: bool,
}

impl Screens {
    /// The hosts of a fleet and, of those that are chosen, what is on each.
    async fn fleet(&mut self, client: &Client) -> Result<(), Failure> {
        let mut hosts = HostsModel::default();
        loop {
            let (sender, feeds) = mpsc::channel(FEEDS_WAITING_MAX);
            let reading = hosts::feed::read(client, self.interval, sender);
            let ScreenEnd::Open = self.show(client, &mut hosts, (reading, feeds), |_| ()).await?
            else {
                return Ok(());
            };
            let Some(host) = hosts.chosen() else { continue };
            let of_host = client.clone().for_host(host)?;
            let ScreenEnd::Back = self.daemon(&of_host, true).await? else { return Ok(()) };
        }
    }

    /// One daemon: the one at the endpoint, or that of a host.
    async fn daemon(&mut self, client: &Client, has_hosts: bool) -> Result<ScreenEnd, Failure> {
        let mut model = Model::of(client.host().map(str::to_owned), has_hosts);
        let (sender, feeds) = mpsc::channel(FEEDS_WAITING_MAX);
        let (open, opened) = watch::channel(None);
        let reading = feed::read(client, self.interval, opened, sender);
        let note = |model: &Model| {
            let dag = model.opened_dag();
            open.send_if_modified(|opened| {
                let is_other = *opened != dag;
                *opened = dag;
                is_other
            });
        };
        self.show(client, &mut model, (reading, feeds), note).await
    }

    /// Shows a screen, and what is read for it, until it is left; `note` is told of each that is drawn.
    async fn show<S: Screen>(
        &mut self,
        client: &Client,
        screen: &mut S,
        (reading, mut feeds): (impl Future<Output = ()>, mpsc::Receiver<S::Feed>),
        note: impl Fn(&S),
    ) -> Result<ScreenEnd, Failure> {
        let mut reading = pin!(reading);
        let mut redraw = tokio::time::interval(REDRAW);
        let mut acting: Option<PendingRequest<'_>> = None;
        loop {
            let theme = Theme { is_colour: self.is_colour, now: SystemTime::now() };
            note(screen);
            self.terminal.draw(|frame| screen.draw(frame, theme)).map_err(Failure::Output)?;
            tokio::select! {
                key = self.keys.next() => match key {
                    Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                        match screen.press(key) {
                            KeyOutcome::Quit => return Ok(ScreenEnd::Quit),
                            KeyOutcome::Open => return Ok(ScreenEnd::Open),
                            KeyOutcome::Back => return Ok(ScreenEnd::Back),
                            KeyOutcome::Draw => {}
                            KeyOutcome::Act => {
                                let style = self.style()?;
                                let action = screen.prompt().next.take();
                                // One at a time: a second one takes the place of what the first would say.
                                acting = action.map(|action| -> PendingRequest<'_> {
                                    Box::pin(action.carry_out(client, style))
                                });
                            }
                        }
                    }
                    // Redrawn in the new size.
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(Failure::Output(error)),
                    // The terminal is gone.
                    None => return Ok(ScreenEnd::Quit),
                },
                feed = feeds.recv() => {
                    if let Some(feed) = feed {
                        screen.take(feed, SystemTime::now());
                    }
                }
                // It does not end for want of a receiver, which is here.
                () = &mut reading => return Ok(ScreenEnd::Fleet),
                done = async { acting.as_mut().expect("it is checked").await }, if acting.is_some() => {
                    acting = None;
                    screen.prompt().done = Some(done.map_err(|error| error.to_string()));
                }
                _ = redraw.tick() => {}
            }
        }
    }

    /// Style of an action's answer.
    fn style(&self) -> Result<Style, Failure> {
        let width = self.terminal.size().map_err(Failure::Output)?.width;
        let width = usize::from(width).max(WIDTH_MIN);
        Ok(Style { is_colour: false, width, now: SystemTime::now() })
    }
}

/// Prints one screen as plain text.
///
/// # Errors
/// [`Failure`]: the server's, or of the output.
pub async fn once(client: &Client) -> Result<(), Failure> {
    let now = SystemTime::now();
    let theme = Theme { is_colour: false, now };
    let host = client.host().map(str::to_owned);
    let text = if host.is_none() && hosts::feed::is_fleet(client).await? {
        let mut model = HostsModel::default();
        let status = hosts::feed::status(client).await?;
        model.take(FleetFeed::Status(Box::new(status)), now);
        model.take(FleetFeed::Hosts(hosts::feed::hosts(client).await?), now);
        screen(&model, theme)
    } else {
        let mut model = Model::of(host, false);
        model.take(Feed::Snapshot(Box::new(feed::snapshot(client).await?)), now);
        screen(&model, theme)
    };
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)
}

/// The screen as lines of text.
fn screen(screen: &impl Screen, theme: Theme) -> String {
    let (width, height) = SIZE;
    let backend = TestBackend::new(width, height);
    let mut terminal = match Terminal::new(backend) {
        Ok(terminal) => terminal,
        Err(never) => match never {},
    };
    match terminal.draw(|frame| screen.draw(frame, theme)) {
        Ok(_) => {}
        Err(never) => match never {},
    }
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(usize::from(width)).map(|line| {
        let text: String = line.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned() + "\n"
    });
    lines.collect()
}
