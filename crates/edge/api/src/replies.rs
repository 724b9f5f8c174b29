//! Replies that carry one thing: each method has a message of its own, so that a reply can get more
//! fields later. A server converts what it found with `into()`; a client takes it out with
//! [`ItemOf::item`].

use tonic::{Response, Status};

use crate::v1::*;

/// A reply that carries one thing.
pub trait OneItem: Sized {
    /// Type of its one field.
    type Item;

    /// Takes its one field.
    ///
    /// # Errors
    /// `INTERNAL` if the server left it out.
    fn into_item(self) -> Result<Self::Item, Status>;
}

/// Takes what a reply carries out of the result of a call.
pub trait ItemOf<R: OneItem> {
    /// Takes the one field of the reply.
    ///
    /// # Errors
    /// The call's status, or `INTERNAL` if the server left it out.
    fn item(self) -> Result<R::Item, Status>;
}

impl<R: OneItem> ItemOf<R> for Result<Response<R>, Status> {
    fn item(self) -> Result<R::Item, Status> {
        self?.into_inner().into_item()
    }
}

macro_rules! replies {
    ($($field:ident: $item:ty => $($reply:ident)+;)+) => {
        $($(
            impl From<$item> for $reply {
                fn from($field: $item) -> Self {
                    Self { $field: Some($field) }
                }
            }

            impl OneItem for $reply {
                type Item = $item;

                fn into_item(self) -> Result<$item, Status> {
                    let missing = || {
                        let text = concat!("the server's reply has no ", stringify!($field));
                        Status::internal(text)
                    };
                    self.$field.ok_or_else(missing)
                }
            }
        )+)+
    };
}

include!(concat!(env!("OUT_DIR"), "/replies.rs"));
