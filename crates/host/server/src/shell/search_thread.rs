//! The thread that searches cards for better arrangements, one after the other: a search takes as long as
//! many requests, and the controller's thread has none of that time.
//!
//! A search that panics is a defect. It ends as failed, and the thread goes on: otherwise its card and all others
//! would count as searched until the next start.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use snic_controller::{Arrangement, CardPicture, Controller, Event};
use snic_domain::CardId;
use snic_telemetry::metrics::instruments;

use super::inbox::Inbox;
use super::message::{DeferredReply, Message};

/// Requests to the thread. It ends when this is dropped.
pub(super) type Searches = mpsc::Sender<(CardId, u32)>;

/// Starts the thread. Of each card one search waits at most, so what waits is bounded.
///
/// # Errors
/// The operating system gives no thread.
pub(super) fn start(messages: Inbox) -> std::io::Result<Searches> {
    start_with(messages, |controller, card| controller.picture(card).ok(), CardPicture::search)
}

/// Copy that is taken of the controller, and the search in it.
fn start_with<P: Send + 'static>(
    messages: Inbox,
    picture: fn(&Controller, &CardId) -> Option<P>,
    look: fn(P, u32) -> Arrangement,
) -> std::io::Result<Searches> {
    let (sender, searches) = mpsc::channel();
    let serve = move || {
        for (card, reconfigurations) in searches {
            let found = match take(&messages, &card, picture) {
                Some(picture) => caught(&card, || look(picture, reconfigurations)),
                // The card is gone, or the daemon ends.
                None => Arrangement::as_it_is(card),
            };
            messages.send(Message::Event(Event::Searched(found)));
        }
    };
    std::thread::Builder::new().name("search".into()).spawn(serve)?;
    Ok(sender)
}

/// The picture is taken when its turn comes, so of these only one is in memory at a time.
fn take<P: Send + 'static>(
    messages: &Inbox,
    card: &CardId,
    picture: fn(&Controller, &CardId) -> Option<P>,
) -> Option<P> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let wanted = card.clone();
    let query = Box::new(move |controller: &Controller| -> DeferredReply {
        let picture = picture(controller, &wanted);
        // The thread waits for it, unless the daemon ends.
        Box::new(move || drop(sender.try_send(picture)))
    });
    messages.send(Message::Read(query, None));
    receiver.recv().ok().flatten()
}

/// The picture is gone after a panic, so nobody sees it half changed. What panicked and where is on standard error.
fn caught(card: &CardId, search: impl FnOnce() -> Arrangement) -> Arrangement {
    catch_unwind(AssertUnwindSafe(search)).unwrap_or_else(|_| {
        tracing::error!(%card, "the search for a better arrangement panicked");
        instruments().search_failed(card.as_str());
        Arrangement::failed(card.clone())
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use snic_controller::ControllerSettings;
    use snic_domain::Timestamp;

    use super::*;

    /// Longest time of a message that comes at once: a bound for tests that would otherwise hang.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_search_that_panics_has_failed_and_the_next_one_is_made() {
        let now = Timestamp::from_nanos(1);
        let controller = Controller::recover(ControllerSettings::default(), [], 7, now);
        let controller = controller.expect("an empty store");
        let look = |card: CardId, most: u32| match most {
            0 => panic!("on purpose"),
            _ => Arrangement::as_it_is(card),
        };
        let messages = Inbox::new();
        let searches = start_with(messages.clone(), |_, card| Some(card.clone()), look);
        let searches = searches.expect("a thread");
        let card: CardId = "card0".parse().expect("a label");
        for (most, has_failed) in [(0, true), (1, false)] {
            searches.send((card.clone(), most)).expect("the thread is there");
            let found = loop {
                match messages.receive(PATIENCE).expect("the thread goes on").0 {
                    Message::Read(query, _) => query(&controller)(),
                    Message::Event(Event::Searched(found)) => break found,
                    _ => panic!("nobody else sends"),
                }
            };
            assert_eq!((found.card(), found.has_failed()), (&card, has_failed));
        }
    }
}
