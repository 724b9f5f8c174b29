//! The thread that searches cards for better arrangements, one after the other: a search takes as long as
//! many requests, and the controller's thread has none of that time.

use std::sync::mpsc;

use snic_controller::{Arrangement, Controller, Event};
use snic_domain::CardId;

use super::actor::{DeferredReply, Message};
use super::inbox::Inbox;

/// What is asked of the thread. It ends when this is dropped.
pub(super) type Searches = mpsc::Sender<(CardId, u32)>;

/// Starts the thread. Of each card one search waits at most, so what waits is bounded.
///
/// # Errors
/// The operating system gives no thread.
pub(super) fn start(messages: Inbox) -> std::io::Result<Searches> {
    let (sender, searches) = mpsc::channel();
    let serve = move || {
        for (card, reconfigurations) in searches {
            let found = search(&messages, &card, reconfigurations);
            messages.send(Message::Event(Event::Searched(found)));
        }
    };
    std::thread::Builder::new().name("search".into()).spawn(serve)?;
    Ok(sender)
}

/// The picture is taken when its turn comes, so of these only one is in memory at a time.
fn search(messages: &Inbox, card: &CardId, reconfigurations: u32) -> Arrangement {
    let (sender, receiver) = mpsc::sync_channel(1);
    let wanted = card.clone();
    let query = Box::new(move |controller: &Controller| -> DeferredReply {
        let picture = controller.picture(&wanted).ok();
        // The thread waits for it, unless the daemon ends.
        Box::new(move || drop(sender.try_send(picture)))
    });
    messages.send(Message::Read(query, None));
    match receiver.recv() {
        Ok(Some(picture)) => picture.search(reconfigurations),
        // The card is gone, or the daemon ends.
        Ok(None) | Err(_) => Arrangement::as_it_is(card.clone()),
    }
}
