//! The driver of an attach: it carries out each step of the machine with librados and librbd, in a thread that may wait.

use super::machine::{Attached, Machine, Next, Wanted};
use super::request::{AttachRequest, Attachment};
use super::step::{Adoption, Answer, Client, ImageView, Step};
use crate::attach_marker::KEY;
use crate::attached_image::{AttachedImage, Notice, Parts};
use crate::bug::{self, is_left_out, nobody_has_it};
use crate::cluster::{Cluster, Pool, Purpose};
use crate::device::Landed;
use crate::error::refuse;
use crate::given_up::{CancelFlag, given_up_in, leaves_client};
use crate::header_watch::HeaderWatch;
use crate::identity::ImageIdentity;
use crate::image::{Image, LockHolder, Source};
use crate::layout::Layout;
use crate::lock_record::{LockRecord, Loss};
use crate::snapc::SnapContext;
use crate::spec::ImageSpec;
use crate::{CephError, lock_stamp, mirror, pools, status};
use loligo_block::Mailbox;
use loligo_block::lease::{Lease, boottime};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// Attaches an image, unless that is given up.
pub(crate) fn attach_unless(
    request: AttachRequest<'_>,
    cancel: &CancelFlag,
) -> Result<Attachment, CephError> {
    let AttachRequest { spec, cache, steal, without_cache, destage, quiesce_attempts, lease, remember } =
        request;
    let stamp = lock_stamp::draw();
    let wanted = Wanted { spec: spec.clone(), cache, steal, without_cache, destage, lease, stamp };
    let mut machine = Machine::new(wanted);
    let mut driver = Driver::new(spec, Purpose::Own { quiesce_attempts }, remember, cancel);
    let mut next = machine.begin();
    loop {
        next = match next {
            Next::Over(result) => return driver.end(result?),
            Next::Do(step) if cancel.is_cut() && step != Step::Leave => machine.give_up(),
            Next::Do(step) => {
                let (name, begun) = (format!("{step:?}"), Instant::now());
                let answer = driver.carry_out(step);
                tracing::debug!(step = name, ms = begun.elapsed().as_millis(), ok = answer.is_ok());
                machine.answered(answer)
            }
        };
    }
}

/// A client, and the image as it sees it.
#[derive(Debug, Default)]
struct Seen {
    /// Declared before the client that it needs.
    look: Option<Image>,
    cluster: Option<Arc<Cluster>>,
}

/// The handles that an adopted image needs beside the image.
#[derive(Debug)]
struct Pools {
    header: Pool,
    data: Pool,
    prefix: String,
    inbox: Mailbox<Landed>,
}

/// The handles of an attach. They are closed in this order, unless the machine has asked for that before.
struct Driver<'a> {
    spec: &'a ImageSpec,
    purpose: Purpose,
    remember: &'a mut dyn FnMut(&LockRecord) -> Result<(), String>,
    cancel: &'a CancelFlag,
    /// The image's id.
    id: String,
    looking: Seen,
    watch: Option<HeaderWatch>,
    pools: Option<Pools>,
    options: Vec<(String, String, Source)>,
    layout: Option<Layout>,
    image: Option<Image>,
    own: Seen,
    attached: Option<(Arc<AttachedImage>, Receiver<Notice>)>,
}

/// A step came before the one that opens what it needs.
fn not_open<T>() -> Result<T, CephError> {
    refuse("a step of the attach came before what it needs")
}

fn open<T>(what: Option<&T>) -> Result<&T, CephError> {
    what.map_or_else(not_open, Ok)
}

impl<'a> Driver<'a> {
    fn new(
        spec: &'a ImageSpec,
        purpose: Purpose,
        remember: &'a mut dyn FnMut(&LockRecord) -> Result<(), String>,
        cancel: &'a CancelFlag,
    ) -> Driver<'a> {
        Driver {
            spec,
            purpose,
            remember,
            cancel,
            id: String::new(),
            looking: Seen::default(),
            watch: None,
            pools: None,
            options: Vec::new(),
            layout: None,
            image: None,
            own: Seen::default(),
            attached: None,
        }
    }

    fn end(&mut self, attached: Attached) -> Result<Attachment, CephError> {
        let Some((image, notices)) = self.attached.take() else { return not_open() };
        let Attached { changed, warnings } = attached;
        Ok(Attachment { image, notices, changed, warnings })
    }

    fn carry_out(&mut self, step: Step) -> Result<Answer, CephError> {
        let done = |(): ()| Answer::Done;
        match step {
            Step::Connect(by) => self.connect(by),
            Step::ReadFeatures(by) => self.read_features(by),
            Step::ReadView(by) => self.read_view(by),
            Step::ReadMarker(by) => Ok(Answer::Marker(open(self.seen(by).look.as_ref())?.metadata(KEY)?)),
            Step::ReadHeader(by) => self.read_header(by),
            Step::ReadStamp(by, stamp) => self.read_stamp(by, stamp),
            Step::ReadSnapshots(by) => Ok(Answer::Snapshots(open(self.seen(by).look.as_ref())?.snapshots()?)),
            Step::ReadOptions(by) => self.read_options(by),
            Step::TryWrite => self.try_write().map(done),
            Step::Note(record) => (self.remember)(&record).map_err(CephError::named).map(done),
            Step::NoteLost(record, why) => {
                let record = LockRecord { lost: Some(Loss::now(why)), ..*record };
                (self.remember)(&record).map_err(CephError::named).map(done)
            }
            Step::OpenImage => self.open_image().map(done),
            Step::ReadGrouping => self.read_grouping(),
            Step::ReadSize => Ok(Answer::Number(self.image()?.size()?)),
            Step::ReadFlags => Ok(Answer::Reasons(status::warnings(self.image()?.flags()?))),
            Step::ReadWatchTimeout => Ok(Answer::Number(open(self.own.cluster.as_ref())?.watch_timeout())),
            Step::OpenPools => self.open_pools().map(done),
            Step::WatchHeader(mirrors) => self.watch_header(mirrors).map(done),
            Step::Blocklist(address) => open(self.own.cluster.as_ref())?.fence(&address).map(done),
            Step::BreakLock(holder, stamp) => self.break_lock(&holder, stamp),
            Step::ReadWatchers => {
                let clients = self.look_again()?.watchers()?.iter().map(|w| w.client).collect();
                Ok(Answer::Clients(clients))
            }
            Step::TakeLock => self.take_lock(),
            Step::ReadHolder => Ok(Answer::Holder(self.look_again()?.lock_holder()?)),
            Step::ReadHeard => Ok(Answer::Is(open(self.watch.as_ref())?.somebody_came())),
            Step::Adopt(adoption) => self.adopt(*adoption).map(done),
            Step::Refresh => self.attached()?.refresh().map(done),
            Step::DropInheritedMarker => self.attached()?.drop_inherited_mark().map(done),
            Step::OpenGate => {
                let attached = self.attached()?;
                attached.gate.new_epoch();
                attached.gate.open();
                Ok(Answer::Record(Box::new(attached.record())))
            }
            Step::EndWatch
            | Step::CloseLooking
            | Step::CloseImage
            | Step::CloseClient
            | Step::Leave
            | Step::Retire
            | Step::Detach => {
                self.close(&step);
                Ok(Answer::Done)
            }
        }
    }

    /// Ends what `step` names; nothing where that is not open.
    fn close(&mut self, step: &Step) {
        match step {
            Step::EndWatch => drop(self.watch.take()),
            Step::CloseLooking => self.looking = Seen::default(),
            Step::CloseImage => {
                self.own.look = None;
                self.pools = None;
                drop(self.image.take());
            }
            Step::CloseClient => self.own = Seen::default(),
            Step::Retire => drop(self.attached.take().map(|(image, _)| image.retire())),
            // The first error is the one to be told.
            Step::Detach => drop(self.attached.take().map(|(image, _)| image.detach(false))),
            _ => self.leave(),
        }
    }

    /// Nothing of the own client is sent any more, and what librbd holds goes with the process: to end a watch or to close an
    /// image would wait for an answer.
    fn leave(&mut self) {
        if let Some((image, _)) = self.attached.take() {
            image.abandon();
        }
        if let Some(cluster) = &self.own.cluster {
            cluster.silence();
            leaves_client();
        }
        std::mem::forget((self.image.take(), self.watch.take()));
        if self.cancel.is_cut() {
            std::mem::forget((std::mem::take(&mut self.own), self.pools.take()));
        }
    }

    fn seen(&self, by: Client) -> &Seen {
        match by {
            Client::Looking => &self.looking,
            Client::Own => &self.own,
        }
    }

    fn seen_mut(&mut self, by: Client) -> &mut Seen {
        match by {
            Client::Looking => &mut self.looking,
            Client::Own => &mut self.own,
        }
    }

    fn cluster(&self, by: Client) -> Result<&Arc<Cluster>, CephError> {
        open(self.seen(by).cluster.as_ref())
    }

    /// A handle of the image's pool.
    fn pool(&self, by: Client) -> Result<Pool, CephError> {
        self.cluster(by)?.pool(&self.spec.pool, &self.spec.namespace)
    }

    fn image(&self) -> Result<&Image, CephError> {
        open(self.image.as_ref())
    }

    fn attached(&self) -> Result<&Arc<AttachedImage>, CephError> {
        self.attached.as_ref().map_or_else(not_open, |(image, _)| Ok(image))
    }

    /// The image opened anew by the own client: an open one knows of its lock what it was when it was opened.
    fn look_again(&self) -> Result<Image, CephError> {
        Image::look(self.pool(Client::Own)?, &self.spec.image)
    }

    fn connect(&mut self, by: Client) -> Result<Answer, CephError> {
        let purpose = if by == Client::Looking { Purpose::Look } else { self.purpose };
        let cluster = Arc::new(Cluster::connect(self.spec, purpose)?);
        if by == Client::Own {
            self.cancel.own(&cluster)?;
        }
        let number = cluster.instance();
        self.seen_mut(by).cluster = Some(cluster);
        Ok(Answer::Connected(number))
    }

    fn read_features(&mut self, by: Client) -> Result<Answer, CephError> {
        let look = Image::look(self.pool(by)?, &self.spec.image)?;
        let features = Answer::Features(look.features()?, look.is_old()?);
        self.seen_mut(by).look = Some(look);
        Ok(features)
    }

    fn read_view(&mut self, by: Client) -> Result<Answer, CephError> {
        let (cluster, look) = (self.cluster(by)?, open(self.seen(by).look.as_ref())?);
        let pool = self.pool(by)?;
        let identity = ImageIdentity {
            fsid: cluster.fsid()?,
            pool: pool.id(),
            namespace: self.spec.namespace.clone(),
            id: look.id()?,
        };
        let (holder, mut watchers) = (look.lock_holder()?, look.watchers()?);
        let mirrored = mirror::find(&pool, &identity.id, &mut watchers);
        let given_up = given_up_in(&identity.fsid);
        self.id.clone_from(&identity.id);
        Ok(Answer::View(Box::new(ImageView { identity, holder, watchers, mirrored, given_up })))
    }

    fn read_header(&self, by: Client) -> Result<Answer, CephError> {
        let (context, version) = match (by, &self.pools) {
            (Client::Own, Some(pools)) => SnapContext::read_with_version(&pools.header, &self.id)?,
            _ => SnapContext::read_with_version(&self.pool(by)?, &self.id)?,
        };
        Ok(Answer::Header(context.seq, version))
    }

    fn read_stamp(&self, by: Client, stamp: i64) -> Result<Answer, CephError> {
        lock_stamp::is_last(&self.pool(by)?, &self.id, stamp).map(Answer::Is)
    }

    fn read_options(&mut self, by: Client) -> Result<Answer, CephError> {
        let image = if by == Client::Own { self.image()? } else { open(self.looking.look.as_ref())? };
        self.options = image.options()?;
        // Left out, our own client is told not to fence.
        let excluded = !is_left_out(bug::Step::Fence);
        let overridden = excluded.then(|| status::overridden(self.spec, &self.options));
        Ok(Answer::Reasons(overridden.unwrap_or_default()))
    }

    fn try_write(&self) -> Result<(), CephError> {
        self.pool(Client::Looking)?.takes_writes(&format!("rbd_header.{}", self.id))
    }

    fn open_image(&mut self) -> Result<(), CephError> {
        self.image = Some(Image::open(self.pool(Client::Own)?, &self.spec.image)?);
        Ok(())
    }

    fn read_grouping(&mut self) -> Result<Answer, CephError> {
        let image = self.image()?;
        let layout = image.layout()?;
        let mut against = status::ungrouped(layout, &self.options);
        against.extend(pools::ungrouped(self.cluster(Client::Own)?, image.data_pool())?);
        self.layout = Some(layout);
        Ok(Answer::Reasons(against))
    }

    fn open_pools(&mut self) -> Result<(), CephError> {
        let (cluster, image, namespace) = (self.cluster(Client::Own)?, self.image()?, &self.spec.namespace);
        let header = self.pool(Client::Own)?;
        let data = if is_left_out(bug::Step::Instance) {
            let other = Arc::new(Cluster::connect(self.spec, self.purpose)?);
            other.pool_number(image.data_pool(), namespace)?
        } else {
            cluster.pool_number(image.data_pool(), namespace)?
        };
        let prefix = image.prefix()?;
        let inbox = Mailbox::new().map_err(|e| CephError::named(e.to_string()))?;
        self.pools = Some(Pools { header, data, prefix, inbox });
        Ok(())
    }

    fn watch_header(&mut self, mirrors: Vec<i64>) -> Result<(), CephError> {
        let pool = self.pool(Client::Own)?;
        self.watch = Some(HeaderWatch::open(self.cluster(Client::Own)?, pool, &self.id, mirrors)?);
        Ok(())
    }

    fn break_lock(&mut self, holder: &LockHolder, stamp: i64) -> Result<Answer, CephError> {
        let pools = open(self.pools.as_ref())?;
        let version = lock_stamp::break_lock(&pools.header, &self.id, holder, stamp)?;
        if is_left_out(bug::Step::Noting) {
            // As a crash right here: what librbd holds goes with the process.
            std::mem::forget((self.image.take(), self.watch.take()));
            return refuse("left out: noting that the lock is free");
        }
        Ok(Answer::Version(version))
    }

    fn take_lock(&self) -> Result<Answer, CephError> {
        nobody_has_it();
        if is_left_out(bug::Step::Taking) {
            // With dirty data the client is left as by a crash.
            return refuse("left out: taking the lock");
        }
        let asked = boottime();
        self.image()?.lock()?;
        Ok(Answer::Locked(asked))
    }

    fn adopt(&mut self, adoption: Adoption) -> Result<(), CephError> {
        let (Some(image), Some(pools), Some(layout)) = (self.image.take(), self.pools.take(), self.layout)
        else {
            return not_open();
        };
        let Adoption { identity, size, holder, lease, asked, why_librbd } = adoption;
        let Pools { header, data, prefix, inbox } = pools;
        let (tell, notices) = channel();
        let attached = Arc::new(AttachedImage::new(Parts {
            spec: self.spec.clone(),
            identity,
            size,
            layout,
            holder,
            prefix,
            image,
            header,
            data,
            why_librbd,
            notices: tell,
            inbox,
            lease: Lease::since(lease, asked),
        }));
        self.own = Seen::default();
        let watched = attached.watch();
        self.attached = Some((attached, notices));
        watched
    }
}
