//! A volume as clients in the same process reach it: without a socket, from any thread.

use loligo_block::{Answer, ReqError, Request};

/// Takes the answer to one request, on the thread that made it; it must not block.
pub type Answered = Box<dyn FnOnce(Result<Answer, ReqError>) + Send>;

/// The way in for requests of such clients.
pub trait Volume: Send + Sync {
    /// Hands `request` over and returns at once; its id is for the volume to choose. `answered` is called exactly once, with
    /// [`ReqError::Shutdown`] from the moment on when the volume stops.
    fn ask(&self, request: Request, answered: Answered);
}
