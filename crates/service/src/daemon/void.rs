//! A start after the cache was gone: what it holds is void, so that the volume begins with a new one, or without.

use super::state::LastCache;
use crate::cache;
use crate::say::say;
use crate::serve::{CacheOptions, ServeOptions};

/// Has `o` start with a new cache where the one that `last` says is void lies, and without one where that is not there.
pub(super) fn settle(o: &mut ServeOptions, last: &LastCache) {
    let Some(c) = o.cache.as_mut().filter(|_| last.void) else { return };
    // Whatever may be said against the device is for the start to say, if it is another.
    let look = CacheOptions { create: true, force: true, expected: None, ..c.clone() };
    let found = match cache::peek(&look) {
        Ok((Some(_), found)) => found,
        Ok((None, _)) | Err(_) if c.path != last.path => return,
        Ok((None, _)) | Err(_) => {
            say!(
                "warning: the cache {} failed and is not there: the core has everything, and is served without it. 'loligo volume attach' \
                 gives the volume another one",
                c.path.display()
            );
            (o.cache, o.home_offset) = (None, None);
            o.params.clear();
            return;
        }
    };
    if found.is_some_and(|sb| sb.uuid_text() == last.uuid) {
        say!("{}: what it holds was void since it failed: it is made anew", c.path.display());
        (c.create, c.force) = (true, true);
    }
}
