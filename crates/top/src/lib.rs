//! `snicctl top`: a live screen of regions, DAGs, tenants and events. The state of the screen (`model`) and
//! its rendering (`draw`) need no terminal; this module has the terminal.

mod actions;
mod draw;
mod feed;
mod model;
mod panels;

use std::io::{self, IsTerminal as _, Write as _};
use std::pin::{Pin, pin};
use std::time::{Duration, SystemTime};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, EventStream, KeyEventKind};
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt as _;

use draw::Theme;
use model::{Feed, KeyOutcome, Model};
use snic_client::output::{Style, WIDTH_MIN, wants_colour};
use snic_client::{Client, Failure};

/// How often the screen is redrawn without a change, for the clock and remaining times.
const REDRAW: Duration = Duration::from_millis(250);
/// Changes that may wait to be drawn. Further ones arrive with the next snapshot.
const FEEDS_WAITING_MAX: usize = 64;
/// Size of the screen that `--once` prints, in columns and lines.
const SIZE: (u16, u16) = (80, 24);

/// What the server was asked for, until it has answered.
type Acting<'a> = Pin<Box<dyn Future<Output = Result<String, Failure>> + 'a>>;

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
    let mut terminal = ratatui::try_init().map_err(Failure::Output)?;
    let result = show(client, interval, &mut terminal, is_colour).await;
    ratatui::restore();
    result
}

async fn show(
    client: &Client,
    interval: Duration,
    terminal: &mut ratatui::DefaultTerminal,
    is_colour: bool,
) -> Result<(), Failure> {
    let (sender, mut feeds) = mpsc::channel(FEEDS_WAITING_MAX);
    let (open, opened) = watch::channel(None);
    let mut reading = pin!(feed::read(client, interval, opened, sender));
    let mut keys = EventStream::new();
    let mut redraw = tokio::time::interval(REDRAW);
    let mut model = Model::default();
    let mut acting: Option<Acting<'_>> = None;
    loop {
        let theme = Theme { is_colour, now: SystemTime::now() };
        let dag = model.opened_dag();
        open.send_if_modified(|opened| {
            let is_other = *opened != dag;
            *opened = dag;
            is_other
        });
        terminal.draw(|frame| draw::draw(frame, &model, theme)).map_err(Failure::Output)?;
        tokio::select! {
            key = keys.next() => match key {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    match model.press(key) {
                        KeyOutcome::Quit => return Ok(()),
                        KeyOutcome::Draw => {}
                        KeyOutcome::Act => {
                            let width = terminal.size().map_err(Failure::Output)?.width;
                            let style = Style {
                                is_colour: false,
                                width: usize::from(width).max(WIDTH_MIN),
                                now: SystemTime::now(),
                            };
                            let action = model.next.take();
                            // One at a time: a second one takes the place of what the first would say.
                            acting = action.map(|action| -> Acting<'_> {
                                Box::pin(action.carry_out(client, style))
                            });
                        }
                    }
                }
                // Redrawn in the new size.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Failure::Output(error)),
                // The terminal is gone.
                None => return Ok(()),
            },
            feed = feeds.recv() => {
                if let Some(feed) = feed {
                    model.take(feed, SystemTime::now());
                }
            }
            // Never ends before this function, which holds the receiver.
            () = &mut reading => {}
            done = async { acting.as_mut().expect("it is checked").await }, if acting.is_some() => {
                acting = None;
                model.take(Feed::Done(done.map_err(|error| error.to_string())), SystemTime::now());
            }
            _ = redraw.tick() => {}
        }
    }
}

/// Prints one screen as plain text.
///
/// # Errors
/// [`Failure`]: the server's, or of the output.
pub async fn once(client: &Client) -> Result<(), Failure> {
    let now = SystemTime::now();
    let mut model = Model::default();
    model.take(Feed::Snapshot(Box::new(feed::snapshot(client).await?)), now);
    let text = screen(&model, Theme { is_colour: false, now });
    io::stdout().write_all(text.as_bytes()).map_err(Failure::Output)
}

/// The screen as lines of text.
fn screen(model: &Model, theme: Theme) -> String {
    let (width, height) = SIZE;
    let backend = TestBackend::new(width, height);
    let mut terminal = match Terminal::new(backend) {
        Ok(terminal) => terminal,
        Err(never) => match never {},
    };
    match terminal.draw(|frame| draw::draw(frame, model, theme)) {
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
