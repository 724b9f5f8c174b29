//! `snicctl top`: the card on a screen that is alive. The state of the screen and what is drawn
//! are values without a terminal (`model`, `draw`); here is the terminal.

mod draw;
mod feed;
mod model;

use std::io::{self, IsTerminal as _, Write as _};
use std::pin::pin;
use std::time::{Duration, SystemTime};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, EventStream, KeyEventKind};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;

use draw::Look;
use model::{After, Feed, Model};
use snic_client::output::wants_colour;
use snic_client::{Client, Failure};

/// How often the screen is drawn anew where nothing happens: clocks and times left go on.
const REDRAW: Duration = Duration::from_millis(250);
/// Changes that wait to be drawn; one that finds no room comes with what is read next.
const FEEDS_WAITING_MAX: usize = 64;
/// The screen that is printed where there is none, in columns and lines.
const SIZE: (u16, u16) = (80, 24);

/// Shows the screen until the user has seen enough.
///
/// # Errors
/// [`Failure`] where there is no terminal, or it cannot be drawn on. A server that does not answer
/// is shown on the screen, and asked again.
pub async fn run(client: &Client, interval: Duration) -> Result<(), Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "`top` draws on a terminal, and this is none",
            "print one screen with `snicctl top --once`",
        ));
    }
    let is_colour = wants_colour(&io::stdout());
    // Restores the terminal, also where something panics.
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
    let mut reading = pin!(feed::read(client, interval, sender));
    let mut keys = EventStream::new();
    let mut redraw = tokio::time::interval(REDRAW);
    let mut model = Model::default();
    loop {
        let look = Look { is_colour, now: SystemTime::now() };
        terminal.draw(|frame| draw::draw(frame, &model, look)).map_err(Failure::Output)?;
        tokio::select! {
            key = keys.next() => match key {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    if model.press(key) == After::Quit {
                        return Ok(());
                    }
                }
                // Drawn anew in the new size.
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
            // Ends with this function: it sends as long as somebody receives.
            () = &mut reading => {}
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
    let text = screen(&model, Look { is_colour: false, now });
    io::stdout().write_all(text.as_bytes()).map_err(Failure::Output)
}

/// A screen as lines of text.
fn screen(model: &Model, look: Look) -> String {
    let (width, height) = SIZE;
    let backend = TestBackend::new(width, height);
    let mut terminal = match Terminal::new(backend) {
        Ok(terminal) => terminal,
        Err(never) => match never {},
    };
    match terminal.draw(|frame| draw::draw(frame, model, look)) {
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
