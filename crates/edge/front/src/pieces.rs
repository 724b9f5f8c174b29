//! Piece that a connection reads in one go, and its caller's turn to do so.
//!
//! A task that reads calls also begins them. A caller that sends over a hundred connections would have a hundred of them do so
//! at once, and another caller's one behind them would wait. So a connection hands on what it has read when its caller
//! is next ([`crate::steps`]), and is charged until it reads again.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use crate::steps::SchedulerHandle;

/// Most bytes that a connection reads before others are let go first: a record of TLS, or many short calls. What it
/// reads it also begins, all in one go, and a connection with hundreds of calls would keep a thread for milliseconds.
/// Not less, because uploads have to arrive while the threads are busy, too.
const READ_AT_ONCE: usize = 16 << 10;

/// Reads a few calls at a time, each time when its caller is next.
#[derive(Debug)]
pub(crate) struct FairReader {
    stepper: SchedulerHandle,
    /// Bytes that it has read and not handed on.
    piece: Vec<u8>,
}

impl FairReader {
    /// A reader that takes steps of this stepper.
    pub const fn new(stepper: SchedulerHandle) -> Self {
        Self { stepper, piece: Vec::new() }
    }

    /// Reads at most [`READ_AT_ONCE`]. What was read before has been dealt with by now.
    pub fn read(
        &mut self,
        io: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.pause();
        if self.piece.is_empty() {
            let mut piece = [0; READ_AT_ONCE];
            let mut piece = ReadBuf::new(&mut piece[..READ_AT_ONCE.min(buf.remaining())]);
            ready!(io.poll_read(cx, &mut piece))?;
            if piece.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.piece = piece.filled().to_vec();
        }
        ready!(self.stepper.poll_begin(cx));
        let rest = self.piece.split_off(buf.remaining().min(self.piece.len()));
        buf.put_slice(&std::mem::replace(&mut self.piece, rest));
        // It is polled again in any case, so that its step ends, whatever it does with the piece.
        cx.waker().wake_by_ref();
        Poll::Ready(Ok(()))
    }

    /// It does not go on with what it has read, for it waits for something else.
    pub fn pause(&mut self) {
        self.stepper.end();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::share::{CallerFlow, CallerLevel};
    use crate::steps::FairScheduler;

    /// A connection of this user that has all that is sent to read.
    struct Reader<'a> {
        sent: &'a [u8],
        pieces: FairReader,
    }

    impl<'a> Reader<'a> {
        fn new(steps: &FairScheduler, user: u32, sent: &'a [u8]) -> Self {
            let stepper = steps.stepper(CallerLevel::Tenants, CallerFlow::User(user));
            Self { sent, pieces: FairReader::new(stepper) }
        }

        /// Bytes that it reads when it is polled once, into a buffer of so many bytes.
        fn read(&mut self, room: usize) -> Option<Vec<u8>> {
            let (mut buf, mut cx) = (vec![0; room], Context::from_waker(Waker::noop()));
            let mut buf = ReadBuf::new(&mut buf);
            let read = self.pieces.read(Pin::new(&mut self.sent), &mut cx, &mut buf);
            read.is_ready().then(|| buf.filled().to_vec())
        }
    }

    #[test]
    fn a_connection_that_always_has_more_lets_others_go_first_after_each_piece() {
        let sent: Vec<u8> = (0..40_000).map(|number| number as u8).collect();
        let mut reader = Reader::new(&FairScheduler::of_threads(1), 1, &sent);
        let mut read = Vec::new();
        for expected in [READ_AT_ONCE, READ_AT_ONCE, 40_000 - 2 * READ_AT_ONCE] {
            assert_eq!(reader.read(64 << 10), None, "it queues");
            let piece = reader.read(64 << 10).expect("nobody else is there");
            assert_eq!(piece.len(), expected);
            read.extend(piece);
        }
        assert_eq!(read, sent);
        assert_eq!(reader.read(64 << 10), Some(Vec::new()), "the end needs no turn");
    }

    #[test]
    fn a_smaller_buffer_than_before_gets_all_in_parts() {
        let mut reader = Reader::new(&FairScheduler::of_threads(1), 1, b"0123456789");
        assert_eq!(reader.read(10), None);
        assert_eq!(reader.read(7).as_deref(), Some(&b"0123456"[..]));
        assert_eq!(reader.read(7), None);
        assert_eq!(reader.read(7).as_deref(), Some(&b"789"[..]));
    }

    #[test]
    fn a_caller_with_one_connection_is_next_beside_one_with_hundreds() {
        let (steps, sent) = (FairScheduler::of_threads(2), vec![0; 1 << 20]);
        let mut many: Vec<_> = (0..300).map(|_| Reader::new(&steps, 1, &sent)).collect();
        let mut one = Reader::new(&steps, 2, &sent);
        // All have something to read in the same moment.
        assert!(many.iter_mut().all(|reader| reader.read(1 << 20).is_none()));
        assert!(one.read(1 << 20).is_none());
        // Those that may go on do, one after the other, and are done with what they have read.
        let mut goes_on = || {
            let reading = many.iter_mut().filter(|reader| !reader.pieces.piece.is_empty());
            let next = { reading }.find_map(|reader| reader.read(1 << 20).map(|_| reader));
            next.map(|reader| reader.pieces.pause())
        };
        let mut ahead = 0;
        while one.read(1 << 20).is_none() {
            goes_on().expect("somebody always may");
            ahead += 1;
        }
        assert!(ahead <= 2, "{ahead} went first, of two threads");
    }

    #[test]
    fn who_waits_for_something_else_or_is_gone_keeps_no_step() {
        let (steps, sent) = (FairScheduler::of_threads(1), vec![0; 100]);
        let mut first = Reader::new(&steps, 1, &sent);
        let mut other = Reader::new(&steps, 2, &sent);
        assert!(first.read(100).is_none() && first.read(100).is_some());
        assert!(other.read(100).is_none() && other.read(100).is_none(), "the first is in its step");
        first.pieces.pause();
        assert!(other.read(100).is_some());
        let mut third = Reader::new(&steps, 3, &sent);
        assert!(third.read(100).is_none() && third.read(100).is_none());
        drop(other);
        assert!(third.read(100).is_some());
    }
}
