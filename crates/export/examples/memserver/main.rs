//! `memserver LISTEN RAMBYTES|FILE`: an NBD server over RAM or a file until standard input closes, to try clients on.

mod serve;
mod volume;

use loligo_export::{Export, Guard, Limits, ListenAddr, Listener, Server};
use std::error::Error;
use std::os::fd::AsFd;
use volume::Volume;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [listen, what] = args.as_slice() else { return Err("usage: memserver LISTEN RAMBYTES|FILE".into()) };
    let addr: ListenAddr = listen.parse()?;
    let mut volume = match what.parse::<usize>() {
        Ok(bytes) => Volume::ram(bytes),
        Err(_) => Volume::file(what)?,
    };
    let mut server = Server::new(Export::new("mem", volume.size()), Limits::default(), None);
    let listeners = [Listener::bind(&addr, Guard::Cleartext)?];
    serve::serve(&listeners, &mut server, &mut volume, std::io::stdin().as_fd());
    Ok(())
}
