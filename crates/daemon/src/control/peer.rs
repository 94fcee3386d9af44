//! The users who may ask: root, and the user that the service runs as. The socket's mode says so too; this
//! holds where somebody has changed that.

use super::answer::Refused;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Request, rejection};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::IncomingStream;
use tokio::net::UnixListener;

/// The user at the other end of a connection; nothing where the kernel does not say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(Option<u32>);

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Peer {
        Peer(stream.io().peer_cred().ok().map(|c| c.uid()))
    }
}

/// Lets a request through, or not.
pub(super) async fn check(
    peer: Result<ConnectInfo<Peer>, rejection::ExtensionRejection>,
    request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let uid = peer.ok().and_then(|ConnectInfo(Peer(uid))| uid);
    match uid.filter(|uid| may(*uid)) {
        Some(_) => Ok(next.run(request).await),
        None => Err(Refused(
            StatusCode::FORBIDDEN,
            "only root and the user that the service runs as may ask: run this as one of them".to_owned(),
        )),
    }
}

fn may(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}
