//! Calls any method with any bytes: what a client of the generated code could not send.

use bytes::{Buf as _, BufMut as _};
use tokio_stream::StreamExt as _;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Bytes as they are.
#[derive(Debug, Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        dst.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let bytes = src.copy_to_bytes(src.remaining());
        Ok(Some(bytes.to_vec()))
    }
}

/// The first message of the reply, or the status. A reply without a message is empty.
pub async fn call(
    channel: &Channel,
    path: &str,
    messages: Vec<Vec<u8>>,
) -> Result<Vec<u8>, Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let path = path.parse().expect("a path");
    let request = Request::new(tokio_stream::iter(messages));
    let mut answer = grpc.streaming(request, path, Raw).await?.into_inner();
    answer.next().await.unwrap_or_else(|| Ok(Vec::new()))
}

/// End of a call with this timeout whose message never comes.
pub async fn endless(
    channel: &Channel,
    path: &str,
    timeout: std::time::Duration,
) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let path = path.parse().expect("a path");
    let mut request = Request::new(tokio_stream::pending::<Vec<u8>>());
    request.set_timeout(timeout);
    let mut answer = grpc.streaming(request, path, Raw).await?.into_inner();
    answer.next().await.unwrap_or_else(|| Ok(Vec::new())).map(|_| ())
}
