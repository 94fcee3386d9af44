//! Values of network interfaces, in network namespaces: set on real interfaces, tried with real packets, and put back whole.
//!
//! `LOLIGO_LONG=1` kills a run at four places instead of one.

use loligo_tests::lab::{Lab, good, refused};
use loligo_tests::server::program;
use loligo_tests::skip::{cluster, installed, is_long, pairs, skip};
use loligo_tests::ssh::Host;
use rustix::thread::LinkNameSpaceType;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Two hosts, as namespaces `a` and `b` with an interface `v0` each: 10.77.0.1 and 10.77.0.2.
struct Spaces(String);

impl Drop for Spaces {
    fn drop(&mut self) {
        for name in ["a", "b", "c", "s"] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(name)]).output();
        }
    }
}

/// `ip` with these words; true if it could do it.
fn ip(words: &str) -> bool {
    let out = Command::new("ip").args(words.split(' ')).output().expect("ip runs");
    out.status.success()
}

impl Spaces {
    /// Nothing where there can be none.
    fn new(what: &str) -> Option<Spaces> {
        if !pairs(what, &[]) {
            return None;
        }
        let spaces = Spaces(format!("lt{}-{}", std::process::id(), what.len()));
        for name in ["a", "b"] {
            assert!(ip(&format!("netns add {}", spaces.name(name))), "{name}");
        }
        spaces.link();
        Some(spaces)
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.0)
    }

    /// Makes both interfaces. Each time they have other addresses.
    fn link(&self) {
        let (a, b) = (self.name("a"), self.name("b"));
        let queues = "numrxqueues 2 numtxqueues 2";
        assert!(ip(&format!("link add v0 netns {a} {queues} type veth peer name v0 netns {b} {queues}")));
        for (space, number) in [("a", 1), ("b", 2)] {
            self.ip(space, &format!("addr add 10.77.0.{number}/24 dev v0"));
            self.ip(space, "link set v0 up");
            self.ip(space, "link set lo up");
        }
    }

    fn ip(&self, space: &str, words: &str) {
        assert!(ip(&format!("-n {} {words}", self.name(space))), "{space}: {words}");
    }

    /// Has the program there carry out an order, as over ssh.
    fn order(&self, key: &str, put: Option<Value>, trial: Option<Value>) -> Result<Value, String> {
        Spaces::end(self.begin(key, put, trial))
    }

    fn begin(&self, key: &str, put: Option<Value>, trial: Option<Value>) -> Child {
        Spaces::begin_by(&[&self.name("a")], key, put, trial)
    }

    /// The same in the space and by the program that `by` begins with.
    fn begin_by(by: &[&str], key: &str, put: Option<Value>, trial: Option<Value>) -> Child {
        let mut order = json!({"target": "nic", "key": key, "conf": "", "put": put});
        if let Some(trial) = trial {
            order["trial"] = trial;
        }
        let mut child = Command::new("ip")
            .args(["netns", "exec"])
            .args(by)
            .arg(program())
            .args(["tune", "on-host"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        child.stdin.take().expect("a pipe").write_all(order.to_string().as_bytes()).expect("it reads");
        child
    }

    fn end(child: Child) -> Result<Value, String> {
        let said = child.wait_with_output().expect("it ends").stdout;
        let said: Value = serde_json::from_slice(&said).expect("JSON");
        match said.get("Ok") {
            Some(found) => Ok(found.clone()),
            None => Err(said["Err"].as_str().expect("a reason").to_owned()),
        }
    }

    /// The value at a place, with what goes with it.
    fn look(&self, key: &str) -> Value {
        let found = self.order(key, None, None).expect("it is there");
        let all = found.as_array().expect("places");
        all.iter().find(|it| it["key"] == key).expect("the place")["value"].clone()
    }

    fn now(&self, key: &str) -> String {
        self.look(key)["now"].as_str().expect("a value").to_owned()
    }

    /// Tries a value with packets of this size to the other host.
    fn attempt(&self, key: &str, value: &str, size: i64) -> Result<Value, String> {
        let trial = json!([{"address": "10.77.0.2", "size": size}]);
        self.order(key, Some(json!({"now": value})), Some(trial))
    }

    fn put(&self, key: &str, value: &Value) -> Result<Value, String> {
        self.order(key, Some(value.clone()), None)
    }
}

#[test]
fn an_mtu_stays_only_if_packets_of_its_size_pass() {
    let Some(spaces) = Spaces::new("MTUs of interfaces") else { return };
    let before = spaces.look("v0/mtu");
    assert!(before["now"] == "1500" && before["nic"].as_str().is_some_and(|it| it.len() == 17), "{before}");
    let why = spaces.attempt("v0/mtu", "9000", 9000).expect_err("the other end takes less");
    assert!(why.contains("do not come to 10.77.0.2 whole") && why.contains("It is 1500 again"), "{why}");
    assert_eq!(spaces.look("v0/mtu"), before);
    // As much as the other end takes must pass, and does.
    spaces.attempt("v0/mtu", "9000", 1500).expect("it stays");
    spaces.put("v0/mtu", &before).expect("put back");
    spaces.ip("b", "link set v0 mtu 9000");
    let found = spaces.attempt("v0/mtu", "9000", 9000).expect("it stays");
    assert_eq!(found[0]["value"]["now"], "9000");
    let seen = spaces.order("v0/mtu", None, Some(json!([{"address": "10.77.0.2", "size": 9000}])));
    let seen = seen.expect("they pass")[0]["seen"].clone();
    assert!(seen.as_str().is_some_and(|it| it.contains("9000 bytes pass to 1 OSD")), "{seen}");
    spaces.put("v0/mtu", &before).expect("put back");
    assert_eq!(spaces.look("v0/mtu"), before);
    // Nobody answers: nothing would show that packets pass.
    spaces.ip("b", "addr flush dev v0");
    let why = spaces.attempt("v0/mtu", "9000", 9000).expect_err("nobody answers");
    assert!(why.contains("answers echo requests") && spaces.now("v0/mtu") == "1500", "{why}");
    for bad in ["68", "65535", "x"] {
        let why = spaces.attempt("v0/mtu", bad, 1500).expect_err("out of bounds");
        assert!(why.contains("No rule of this program makes it"), "{why}");
    }

    // Another interface of that name keeps what it has.
    spaces.ip("a", "link del v0");
    spaces.link();
    spaces.ip("a", "link set v0 mtu 2000");
    let why = spaces.put("v0/mtu", &before).expect_err("another one");
    assert!(why.contains("another interface has this name now"), "{why}");
    assert_eq!(spaces.now("v0/mtu"), "2000");
    assert!(spaces.order("v1/mtu", None, None).expect_err("there is none").contains("no interface v1"));
}

/// Runs `work` in one of the spaces.
fn inside<T: Send>(space: &str, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let entered = scope.spawn(|| {
            let file = std::fs::File::open(format!("/run/netns/{space}")).expect("a name space");
            rustix::thread::move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("entered");
            work()
        });
        entered.join().expect("it ends")
    })
}

/// A connection of `a` to a port of `b`, both ends.
fn connection(spaces: &Spaces, port: u16) -> [TcpStream; 2] {
    let to = ("10.77.0.2", port);
    let listener = inside(&spaces.name("b"), || TcpListener::bind(to).expect("a port"));
    let own = inside(&spaces.name("a"), || TcpStream::connect(to).expect("connected"));
    let other = listener.accept().expect("connected").0;
    [own, other]
}

/// True if `a` gets as many bytes as many packets hold from `b` within a second.
fn carries([own, other]: &mut [TcpStream; 2]) -> std::io::Result<bool> {
    own.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    other.write_all(&[7; 32 << 10])?;
    match own.read_exact(&mut [0; 32 << 10]) {
        Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
        said => said.map(|()| true),
    }
}

#[test]
fn connections_for_larger_packets_end_with_their_mtu() {
    if !installed("ss") {
        return skip("connections by an interface", "ss is missing: apt-get install iproute2");
    }
    let Some(spaces) = Spaces::new("connections by an interface") else { return };
    let before = spaces.look("v0/mtu");
    let mut early = connection(&spaces, 6800);
    spaces.ip("b", "link set v0 mtu 9000");
    spaces.attempt("v0/mtu", "9000", 9000).expect("it stays");
    let mut late = connection(&spaces, 6801);
    let mut others = connection(&spaces, 22222);
    for each in [&mut early, &mut late, &mut others] {
        assert!(carries(each).expect("it is there"));
    }
    spaces.put("v0/mtu", &before).expect("put back");
    assert!(carries(&mut early).expect("it is there"), "one from before the change goes on");
    let why = carries(&mut late).expect_err("it has ended: its owner connects anew");
    assert!(
        matches!(why.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::ConnectionAborted),
        "{why}"
    );
    carries(&mut others).expect("one that is not Ceph's is left");
    assert!(carries(&mut connection(&spaces, 6802)).expect("it is there"));
}

/// A switch with ports `ta`, `tb` and `tc` that carry 9000 bytes, and hosts `a`, `b` and `c` at them: 10.78.0.1 to 10.78.0.3.
struct Switch(Spaces);

impl Switch {
    const HOSTS: [&str; 3] = ["a", "b", "c"];

    /// Hosts `b` and `c` have 9000, and `a` has 1500. Nothing where there can be none.
    fn new(what: &str) -> Option<Switch> {
        if !pairs(what, &[]) {
            return None;
        }
        let spaces = Spaces(format!("ls{}-{}", std::process::id(), what.len()));
        for name in ["s", "a", "b", "c"] {
            assert!(ip(&format!("netns add {}", spaces.name(name))), "{name}");
        }
        spaces.ip("s", "link add br0 type bridge");
        spaces.ip("s", "link set br0 up");
        for (host, number) in Self::HOSTS.into_iter().zip(1..) {
            let (at, there) = (spaces.name("s"), spaces.name(host));
            assert!(ip(&format!("link add t{host} netns {at} type veth peer name v0 netns {there}")));
            spaces.ip("s", &format!("link set t{host} mtu 9000 master br0 up"));
            spaces.ip(host, &format!("addr add 10.78.0.{number}/24 dev v0"));
            spaces.ip(host, "link set v0 up");
            if host != "a" {
                spaces.ip(host, "link set v0 mtu 9000");
            }
        }
        spaces.ip("s", "link set br0 mtu 9000");
        Some(Switch(spaces))
    }

    fn mtu(&self, nic: &str) -> String {
        let file = format!("/sys/class/net/{nic}/mtu");
        let out = Command::new("ip").args(["netns", "exec", &self.0.name("a"), "cat", &file]).output();
        String::from_utf8_lossy(&out.expect("it runs").stdout).trim().to_owned()
    }

    /// Tries 9000 on `nic` with packets of 9000 bytes to both others. The `port` of the switch goes down once `v0` has it.
    fn raise(&self, nic: &str, port: Option<&str>) -> Result<Value, String> {
        let both = ["10.78.0.2", "10.78.0.3"].map(|it| json!({"address": it, "size": 9000}));
        std::thread::scope(|scope| {
            let cut = || {
                let deadline = Instant::now() + Duration::from_secs(20);
                while self.mtu("v0") == "1500" && Instant::now() < deadline {}
                self.0.ip("s", &format!("link set {} nomaster", port.expect("a port")));
            };
            let _cutting = port.map(|_| scope.spawn(cut));
            self.0.order(&format!("{nic}/mtu"), Some(json!({"now": "9000"})), Some(json!(both)))
        })
    }
}

#[test]
fn a_host_that_a_change_cuts_off_keeps_its_place_in_the_proof() {
    let Some(switch) = Switch::new("hosts that a change cuts off") else { return };
    switch.raise("v0", None).expect("all is well");
    switch.0.put("v0/mtu", &json!({"now": "1500"})).expect("put back");
    let why = switch.raise("v0", Some("tc")).expect_err("10.78.0.3 is lost");
    assert!(why.contains("10.78.0.3 answers no packet by v0") && why.contains("It is 1500 again"), "{why}");
    assert_eq!(switch.mtu("v0"), "1500");

    // A bridge that does not follow its port sends nothing large: the host may be cut off all the same.
    switch.0.ip("s", "link set tc master br0");
    for words in [
        "addr flush dev v0",
        "link add br1 type bridge",
        "link set v0 master br1",
        "link set br1 mtu 1400",
        "link set br1 mtu 1500",
        "addr add 10.78.0.1/24 dev br1",
        "link set br1 up",
    ] {
        switch.0.ip("a", words);
    }
    switch.raise("v0", None).expect("all is well");
    assert_eq!(switch.mtu("br1"), "1500");
    switch.0.put("v0/mtu", &json!({"now": "1500"})).expect("put back");
    let why = switch.raise("v0", Some("ta")).expect_err("all are lost");
    assert!(why.contains("by br1 any more") && why.contains("It is 1500 again"), "{why}");
    assert_eq!(switch.mtu("v0"), "1500");
}

#[test]
fn an_order_that_is_told_to_end_takes_its_value_back() {
    let Some(switch) = Switch::new("orders that are told to end") else { return };
    switch.0.ip("s", "link set ta mtu 1500");
    switch.0.ip("s", "link set br0 mtu 9000");
    let trial = json!([{"address": "10.78.0.2", "size": 9000}]);
    let order = switch.0.begin("v0/mtu", Some(json!({"now": "9000"})), Some(trial));
    let deadline = Instant::now() + Duration::from_secs(20);
    while switch.mtu("v0") == "1500" {
        assert!(Instant::now() < deadline, "it is tried");
    }
    for signal in ["-TERM", "-HUP", "-INT"] {
        assert!(
            Command::new("kill").args([signal, &order.id().to_string()]).status().expect("it runs").success()
        );
    }
    let why = Spaces::end(order).expect_err("the switch takes less");
    assert!(why.contains("It is 1500 again") && switch.mtu("v0") == "1500", "{why}");
}

#[test]
fn an_mtu_is_refused_where_packets_show_nothing() {
    let Some(switch) = Switch::new("MTUs that nothing shows") else { return };
    // A host with 9000 that is silent, beside one that answers.
    switch.0.ip("b", "addr flush dev v0");
    let why = switch.raise("v0", None).expect_err("10.78.0.2 is silent");
    assert!(why.contains("10.78.0.2 answers no echo request by v0"), "{why}");
    switch.0.ip("b", "addr add 10.78.0.2/24 dev v0");

    // Another interface of the subnet has a way of its own.
    let (at, there) = (switch.0.name("s"), switch.0.name("a"));
    assert!(ip(&format!("link add ta1 netns {at} type veth peer name v1 netns {there}")));
    switch.0.ip("s", "link set ta1 mtu 1500 master br0 up");
    switch.0.ip("s", "link set br0 mtu 9000");
    switch.0.ip("a", "addr add 10.78.0.11/24 dev v1");
    switch.0.ip("a", "link set v1 up");
    switch.0.ip("a", "link set v0 mtu 9000");
    let why = switch.raise("v1", None).expect_err("its port takes 1500");
    assert!(switch.mtu("v1") == "1500" && why.contains("10.78.0"), "{why}");
    switch.0.ip("a", "link del v1");
    switch.0.ip("a", "link set v0 mtu 1500");

    // Files of one host, and sockets of another.
    let (files, sockets) = (switch.0.name("b"), format!("--net=/run/netns/{}", switch.0.name("a")));
    let put = Some(json!({"now": "1500"}));
    let order = Spaces::begin_by(&[&files, "nsenter", &sockets], "v0/mtu", put, None);
    let why = Spaces::end(order).expect_err("two hosts");
    assert!(why.contains("the v0 of /sys is not that of this process"), "{why}");

    // A route in a table of its own.
    switch.0.ip("a", "route del 10.78.0.0/24 dev v0");
    switch.0.ip("a", "route add 10.78.0.0/24 dev v0 src 10.78.0.1 table 100");
    switch.0.ip("a", "rule add to 10.78.0.0/24 lookup 100");
    let why = switch.raise("v0", None).expect_err("no packet is sent");
    assert!(why.contains("v0 has addresses, and no OSD of another host lies behind it"), "{why}");
    assert_eq!(switch.mtu("v0"), "1500");
}

#[test]
fn steering_comes_back_for_each_queue() {
    let Some(spaces) = Spaces::new("steering of packets") else { return };
    let write =
        "echo 1 > /sys/class/net/v0/queues/rx-1/rps_cpus; ls -d /sys/class/net/v0/queues/rx-* | wc -l";
    let out = Command::new("ip").args(["netns", "exec", &spaces.name("a"), "sh", "-ec", write]).output();
    let queues = String::from_utf8_lossy(&out.expect("it runs").stdout).trim().to_owned();
    assert_eq!(queues, "2");
    let before = spaces.look("v0/rps_cpus");
    assert_eq!(before["now"], "rx-0=none rx-1=0");
    spaces.attempt("v0/rps_cpus", "0", 0).expect("it is set");
    assert_eq!(spaces.now("v0/rps_cpus"), "0");
    spaces.put("v0/rps_cpus", &before).expect("put back");
    assert_eq!(spaces.look("v0/rps_cpus"), before);
    let why = spaces.attempt("v0/rings.rx", "512", 0).expect_err("no driver has rings");
    assert!(why.contains("Its driver does not know this"), "{why}");
}

#[test]
fn a_bridge_goes_after_its_ports_and_before_them_back() {
    let Some(spaces) = Spaces::new("MTUs of bridges") else { return };
    spaces.ip("b", "link set v0 mtu 9000");
    spaces.ip("a", "link add br0 type bridge");
    spaces.ip("a", "addr del 10.77.0.1/24 dev v0");
    spaces.ip("a", "link set v0 master br0");
    spaces.ip("a", "addr add 10.77.0.1/24 dev br0");
    spaces.ip("a", "link set br0 up");
    let found = spaces.order("br0/mtu", None, None).expect("places");
    let keys: Vec<&str> =
        found.as_array().expect("places").iter().filter_map(|it| it["key"].as_str()).collect();
    assert_eq!(keys, ["v0/mtu", "br0/mtu"], "ports are raised first");
    let [port, bridge] = [spaces.look("v0/mtu"), spaces.look("br0/mtu")];
    assert_eq!(bridge["nic"], "bridge");
    let why = spaces.attempt("br0/mtu", "9000", 9000).expect_err("its port takes less");
    assert!(why.contains("br0 lies on v0, whose MTU is 1500"), "{why}");

    // A bridge whose MTU nobody has set follows its ports: packets are sent to those behind it.
    spaces.ip("b", "link set v0 mtu 1500");
    let why = spaces.attempt("v0/mtu", "9000", 9000).expect_err("the bridge would send too much");
    assert!(why.contains("do not come to 10.77.0.2 whole"), "{why}");
    assert_eq!((spaces.now("v0/mtu").as_str(), spaces.now("br0/mtu").as_str()), ("1500", "1500"));
    spaces.ip("b", "link set v0 mtu 9000");
    spaces.attempt("v0/mtu", "9000", 9000).expect("it stays");
    spaces.attempt("br0/mtu", "9000", 9000).expect("it stays");
    // One that somebody has set stays as it is.
    spaces.ip("a", "link set br0 mtu 8000");
    spaces.ip("a", "link set br0 mtu 9000");
    let why = spaces.put("v0/mtu", &port).expect_err("the bridge would lose packets");
    assert!(why.contains("br0 lies on v0") && why.contains("lower that one first"), "{why}");
    assert_eq!(spaces.now("v0/mtu"), "9000");
    spaces.put("br0/mtu", &bridge).expect("put back");
    spaces.put("v0/mtu", &port).expect("put back");
    assert_eq!((spaces.look("v0/mtu"), spaces.look("br0/mtu")), (port, bridge));

    if !ip(&format!("-n {} link add link v0 name v0.5 type vlan id 5", spaces.name("a"))) {
        return skip("MTUs of VLANs", "this kernel has none (modprobe 8021q)");
    }
    let why = spaces.attempt("v0.5/mtu", "9000", 1500).expect_err("its parent takes less");
    assert!(why.contains("v0.5 lies on v0"), "{why}");
}

/// A lab of namespaces. The tuner runs in that of osd.1; that of osd.0 is another host, over ssh.
struct Site {
    lab: Lab,
    dir: tempfile::TempDir,
    host: Host,
    id: String,
}

impl Site {
    fn new() -> Option<Site> {
        let what = "MTUs of a cluster";
        if !cluster(what) || !pairs(what, &[]) {
            return None;
        }
        if let Some(why) = Host::missing() {
            skip(what, why);
            return None;
        }
        let lab = Lab::new("tune-nic");
        good(lab.up(&["--osds", "2", "--replicas", "2", "--osd-size", "3g", "--hosts", "namespaces"]));
        let text = |script: &str| String::from_utf8_lossy(&good(lab.sh(script)).stdout).trim().to_owned();
        let id = text("ceph fsid").chars().take(8).collect::<String>();
        let address = text(&format!("ip -o -4 addr show dev ll{id} | awk '{{ print $4 }}' | cut -d/ -f1"));
        let dir = tempfile::tempdir().expect("a folder");
        // Once there is a file 'late', an order to put comes three seconds after its connection has broken off.
        let (wrapper, flag) = (dir.path().join("late.sh"), dir.path().join("late"));
        let script = format!(
            "hostname node2; order=$(cat)\n\
             if [ -e {0} ] && printf %s \"$order\" | grep -q '\"put\":{{\"now\":\"9000\"'; then\n\
             (sleep 3; printf %s \"$order\" | {1} \"$@\") < /dev/null > /dev/null 2>&1 & exit 255\n\
             fi\n\
             printf %s \"$order\" | {1} \"$@\"\n",
            flag.display(),
            program().display()
        );
        std::fs::write(&wrapper, script).expect("a file");
        let host = Host::new(&address, |_| {
            format!("exec ip netns exec loligo-{id}-osd0 unshare --uts sh {} \"$@\"", wrapper.display())
        });
        let site = Site { lab, dir, host, id };
        for link in [format!("ll{0}0", site.id), format!("ll{0}1", site.id), format!("ll{}", site.id)] {
            assert!(ip(&format!("link set {link} mtu 9000")), "{link}");
        }
        site.ip("osd1", "link set eth0 mtu 9000");
        Some(site)
    }

    fn ip(&self, host: &str, words: &str) {
        assert!(ip(&format!("-n loligo-{}-{host} {words}", self.id)), "{host}: {words}");
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("loligo-{}-osd1", self.id)]).arg(program()).arg("tune");
        command.args(args).arg("--conf").arg(self.lab.dir.join("ceph.conf"));
        command.arg("--state").arg(self.dir.path().join("state"));
        if args[0] != "history" {
            command.args(self.host.args());
        }
        command.stdin(Stdio::null());
        command
    }

    fn tune(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("it runs")
    }

    /// The MTU of the other host.
    fn mtu(&self) -> String {
        let of = ["netns", "exec", &format!("loligo-{}-osd0", self.id), "cat", "/sys/class/net/eth0/mtu"];
        let out = Command::new("ip").args(of).output().expect("it runs");
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }

    fn state(&self) -> String {
        let all: Value =
            serde_json::from_slice(&good(self.tune(&["history", "--json"])).stdout).expect("JSON");
        let last = all.as_array().and_then(|all| all.last()).expect("a run");
        last["state"].as_str().expect("a word").to_owned()
    }
}

/// One rule, on two hosts.
const APPLY: [&str; 5] = ["apply", "--yes", "--rule", "NET-02", "--weaken"];

#[test]
fn a_host_that_lags_behind_gets_the_mtu_of_the_others() {
    if !is_long() {
        return skip("interfaces of a cluster's hosts", "it takes two minutes: LOLIGO_LONG=1");
    }
    let Some(site) = Site::new() else { return };
    let done: Value =
        serde_json::from_slice(&good(site.tune(&[&APPLY[..], &["--json"]].concat())).stdout).expect("JSON");
    let change = &done["steps"][0]["change"];
    assert_eq!((&change["who"], &change["key"]), (&"node2".into(), &"eth0/mtu".into()), "{done}");
    let seen = done["seen"].to_string();
    assert!(
        seen.contains("is 9000, until the host starts anew; packets of up to 9000 bytes pass to 1 OSD"),
        "{seen}"
    );
    assert_eq!(site.mtu(), "9000");
    assert!(site.tune(&["watch", "--once"]).status.success());

    // Somebody changes it: it is a drift, and theirs.
    site.ip("osd0", "link set eth0 mtu 4000");
    let drift = site.tune(&["watch", "--once"]);
    let words = String::from_utf8_lossy(&drift.stdout).into_owned();
    assert!(drift.status.code() == Some(1) && words.contains("eth0/mtu on node2 is 4000"), "{words}");
    let back = String::from_utf8_lossy(&good(site.tune(&["rollback", "--json"])).stdout).into_owned();
    assert!(back.contains("changed it since") && site.mtu() == "4000", "{back}");
    site.ip("osd0", "link set eth0 mtu 1500");

    // A run that is killed anywhere is taken back.
    for lines in 0..4 {
        let mut child =
            site.command(&APPLY).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
        let said = BufReader::new(child.stderr.take().expect("a pipe"));
        let _ = said.lines().map_while(Result::ok).nth(lines);
        let _ = child.kill();
        child.wait().expect("it ends");
        let out = site.tune(&["rollback"]);
        let words = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success() || words.contains("no run to take back"), "{words}");
        assert_eq!(site.mtu(), "1500", "killed after line {lines}");
    }

    // A switch on the way takes less: what was there is back before the command ends.
    assert!(ip(&format!("link set ll{}0 mtu 1500", site.id)));
    let said = refused(&site.tune(&APPLY));
    assert!(
        said.contains("nothing was changed") && said.contains("whole: raise the MTU of each switch port"),
        "{said}"
    );
    assert_eq!((site.mtu().as_str(), site.state().as_str()), ("1500", "rolled-back"));
    assert!(ip(&format!("link set ll{}0 mtu 9000", site.id)));

    // A connection breaks off, and the order comes later: the run is open until it is taken back.
    std::fs::write(site.dir.path().join("late"), "").expect("a file");
    let said = refused(&site.tune(&APPLY));
    assert!(said.contains("the order may still be carried out") && site.state() == "stopped", "{said}");
    let deadline = Instant::now() + Duration::from_secs(60);
    while site.mtu() == "1500" {
        assert!(Instant::now() < deadline, "it comes late");
        std::thread::sleep(Duration::from_millis(100));
    }
    good(site.tune(&["rollback"]));
    assert_eq!((site.mtu().as_str(), site.state().as_str()), ("1500", "rolled-back"));
    good(site.lab.run("down", &[]));
}
