//! What a connection reads in one go.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

/// Most bytes that a connection reads before others are let go first: a record of TLS, or many short calls. What it
/// reads it also begins, all in one go, and a connection with hundreds of calls would keep a thread for milliseconds.
/// Not less, because uploads have to arrive while the threads are busy, too.
const READ_AT_ONCE: usize = 16 << 10;

/// Reads a few calls at a time.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Whether it has read since others were last let go first.
    has_read: bool,
}

impl Pieces {
    /// Reads at most [`READ_AT_ONCE`]; each time after it has read, it lets others go first.
    pub fn read(
        &mut self,
        io: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.has_read) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut piece = [0; READ_AT_ONCE];
        let mut piece = ReadBuf::new(&mut piece[..READ_AT_ONCE.min(buf.remaining())]);
        let read = io.poll_read(cx, &mut piece);
        buf.put_slice(piece.filled());
        self.has_read = !piece.filled().is_empty();
        read
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_connection_that_always_has_more_lets_others_go_first_after_each_piece() {
        let sent: Vec<u8> = (0..40_000).map(|number| number as u8).collect();
        let (mut source, mut pieces) = (&sent[..], Pieces::default());
        let mut cx = Context::from_waker(Waker::noop());
        let mut read = Vec::new();
        for expected in [READ_AT_ONCE, READ_AT_ONCE, 40_000 - 2 * READ_AT_ONCE] {
            let mut buf = [0; 64 << 10];
            let mut buf = ReadBuf::new(&mut buf);
            assert!(pieces.read(Pin::new(&mut source), &mut cx, &mut buf).is_ready());
            assert_eq!(buf.filled().len(), expected);
            read.extend_from_slice(buf.filled());
            assert!(pieces.read(Pin::new(&mut source), &mut cx, &mut buf).is_pending());
            assert_eq!(buf.filled().len(), expected, "nothing is read then");
        }
        assert_eq!(read, sent);
        // A small buffer is filled.
        let (mut source, mut buf) = (&sent[..], [0; 7]);
        let mut buf = ReadBuf::new(&mut buf);
        assert!(pieces.read(Pin::new(&mut source), &mut cx, &mut buf).is_ready());
        assert_eq!(buf.filled(), &sent[..7]);
    }
}
