//! The screen, and the keys that change it.

use super::cells::{HEADS, WIDTHS, cells, short, time};
use super::sort::Order;
use loligo_bench::units::bytes;
use loligo_client::watch::{Quantiles, Rates, Row};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row as Cells, Table, TableState};
use std::time::Duration;

/// Lines of the pane about one volume, its border included.
const DETAIL: u16 = 10;
const SLOWEST: Duration = Duration::from_secs(60);
const FASTEST: Duration = Duration::from_millis(250);

/// The rows.
#[derive(Debug)]
pub(super) struct Screen {
    rows: Vec<Row>,
    order: Order,
    /// The volume that is chosen; it stays so wherever it moves.
    chosen: Option<String>,
    detail: bool,
    /// Between two looks.
    pub(super) interval: Duration,
    /// The error of the last look.
    pub(super) problem: Option<String>,
    looked: bool,
}

impl Screen {
    /// Nothing yet.
    pub(super) fn new(interval: Duration, order: Order) -> Screen {
        Screen {
            rows: Vec::new(),
            order,
            chosen: None,
            detail: false,
            interval,
            problem: None,
            looked: false,
        }
    }

    /// Shows these from now on.
    pub(super) fn show(&mut self, rows: Vec<Row>) {
        self.rows = rows;
        self.looked = true;
        self.order.apply(&mut self.rows);
        if self.place().is_none() {
            self.chosen = self.rows.first().map(|r| r.name.clone());
        }
    }

    fn place(&self) -> Option<usize> {
        self.rows.iter().position(|r| Some(&r.name) == self.chosen.as_ref())
    }

    /// Does what a key says; whether that is to end.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if control => return true,
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Enter | KeyCode::Char('d') => self.detail = !self.detail,
            KeyCode::Char('s') => self.order.step(true),
            KeyCode::Char('S') => self.order.step(false),
            KeyCode::Char('r') => self.order.reverse = !self.order.reverse,
            KeyCode::Char('+') => self.interval = (self.interval * 2).min(SLOWEST),
            KeyCode::Char('-') => self.interval = (self.interval / 2).max(FASTEST),
            _ => {}
        }
        self.order.apply(&mut self.rows);
        false
    }

    fn choose(&mut self, step: isize) {
        let last = self.rows.len().saturating_sub(1);
        let at = self.place().unwrap_or(0).saturating_add_signed(step).min(last);
        self.chosen = self.rows.get(at).map(|r| r.name.clone());
    }

    /// Draws all of it.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let detail = if self.detail { DETAIL } else { 0 };
        let parts = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(2),
            Constraint::Length(detail),
            Constraint::Length(1),
        ]);
        let [head, table, pane, foot] = parts.areas(frame.area());
        frame.render_widget(Line::styled(self.title(), Style::new().add_modifier(Modifier::BOLD)), head);
        self.draw_table(frame, table);
        if let Some(row) = self.place().map(|at| &self.rows[at]).filter(|_| self.detail) {
            let block = Block::new().borders(Borders::TOP).title(format!(" {} ", row.name));
            frame.render_widget(Paragraph::new(about(row)).block(block), pane);
        }
        let keys = "q leave   up/down choose   Enter more   s/S sort   r reverse   +/- interval";
        frame.render_widget(Line::styled(keys, Style::new().fg(Color::DarkGray)), foot);
    }

    fn title(&self) -> String {
        let busy: f64 =
            self.rows.iter().filter_map(|r| r.rates.as_ref()).map(|r| r.read_iops + r.write_iops).sum();
        let problem = self.problem.as_ref().map(|p| format!("   {p}")).unwrap_or_default();
        format!(
            "loligo   {} volume(s)   {} requests/s   every {} s   by {}{}{problem}",
            self.rows.len(),
            short(busy),
            self.interval.as_secs_f64(),
            self.order.words(),
            if self.order.reverse { " (reverse)" } else { "" },
        )
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect) {
        if self.rows.is_empty() {
            let words = if self.looked { "no volume is served on this host" } else { "looking ..." };
            return frame.render_widget(Paragraph::new(words), area);
        }
        let mut widths = vec![Constraint::Min(8)];
        widths.extend(WIDTHS.map(Constraint::Length));
        widths.push(Constraint::Fill(1));
        let right = |at: usize, text: String| {
            // Names and reasons are read from their beginning.
            let left = at < 3 || at == HEADS.len() - 1;
            Cell::new(Text::from(text).alignment(if left { Alignment::Left } else { Alignment::Right }))
        };
        let head = HEADS.iter().enumerate().map(|(at, h)| right(at, (*h).to_owned()));
        let rows = self.rows.iter().map(|row| {
            Cells::new(cells(row).into_iter().enumerate().map(|(at, text)| right(at, text)))
                .style(colour(row))
        });
        let table = Table::new(rows, widths)
            .header(Cells::new(head).style(Style::new().add_modifier(Modifier::REVERSED)))
            .row_highlight_style(Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED));
        let mut state = TableState::new().with_selected(self.place());
        frame.render_stateful_widget(table, area, &mut state);
    }
}

fn colour(row: &Row) -> Style {
    let errors = row.rates.as_ref().is_some_and(|r| r.crc_errors + r.io_errors > 0);
    match row.state.as_str() {
        _ if row.poisoned || row.lost || row.cache_gone || errors => Style::new().fg(Color::Red),
        "serving" => Style::new(),
        "refused" | "failed" | "lost" | "silent" => Style::new().fg(Color::Red),
        _ => Style::new().fg(Color::Yellow),
    }
}

/// All about one volume.
fn about(row: &Row) -> Vec<Line<'static>> {
    let whole = |n: u64| bytes(n as f64);
    let why = row.why.as_ref().map(|w| format!(": {w}")).unwrap_or_default();
    let mut lines = vec![
        format!("{}{why}", row.state),
        format!(
            "cache     {} in use of {}, {} dirty ({}), {} connection(s)",
            whole(row.occupied_bytes),
            whole(row.cache_bytes),
            whole(row.dirty_bytes),
            row.dirty_percent.map_or("-".to_owned(), |p| format!("{p:.1} %")),
            row.connections
        ),
    ];
    if let Some(r) = &row.rates {
        lines.extend(rates(r));
    }
    lines.into_iter().map(Line::from).collect()
}

fn rates(r: &Rates) -> Vec<String> {
    let op = |iops: f64, more: &str, q: Option<Quantiles>| {
        let took = q.map_or("-".to_owned(), |q| {
            format!("p50 {}  p99 {}  longest {}", time(q.p50_us), time(q.p99_us), time(q.max_us))
        });
        format!("{:>6}/s  {more:<26}  {took}", short(iops))
    };
    let hits = |bytes_s: f64, hits: Option<f64>| {
        let hits = hits.map_or(String::new(), |h| format!(", {h:.1} % hit"));
        format!("{} MB/s{hits}", short(bytes_s / 1e6))
    };
    let mb = |v: f64| short(v / 1e6);
    let bypass: Vec<String> = r.bypass.iter().map(|(why, n)| format!("{why} {}/s", short(*n))).collect();
    vec![
        format!("reads   {}", op(r.read_iops, &hits(r.read_bytes_s, r.read_hit_percent), r.read)),
        format!("writes  {}", op(r.write_iops, &hits(r.write_bytes_s, r.write_hit_percent), r.write)),
        format!("flushes {}", op(r.flush_iops, "", r.flush)),
        format!(
            "devices   cache {} in {} out, core {} in {} out MB/s; destaged {} MB/s",
            mb(r.cache_read_bytes_s),
            mb(r.cache_write_bytes_s),
            mb(r.core_read_bytes_s),
            mb(r.core_write_bytes_s),
            mb(r.destage_bytes_s)
        ),
        format!(
            "engine    {} promoted, {} evicted, {} slowed down /s; {} checksum and {} device errors",
            short(r.fills_s),
            short(r.evictions_s),
            short(r.paced_s),
            r.crc_errors,
            r.io_errors
        ),
        format!("bypass    {}", if bypass.is_empty() { "none".to_owned() } else { bypass.join(", ") }),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::sort::Sort;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn row(name: &str, iops: f64) -> Row {
        let q = Quantiles { count: 9, p50_us: 85.0, p99_us: 1_500.0, max_us: 2.2e6 };
        let rates = Rates {
            read_iops: iops,
            write_iops: 12_345.0,
            read_bytes_s: 218e6,
            hit_percent: Some(99.2),
            latency: Some(q),
            read: Some(q),
            destage_bytes_s: 40e6,
            bypass: vec![("sequential".into(), 1_234.0), ("mode".into(), 2.0)],
            ..Rates::default()
        };
        Row {
            name: name.into(),
            state: "serving".into(),
            why: None,
            mode: Some("wb".into()),
            poisoned: false,
            cache_gone: false,
            lost: false,
            connections: 2,
            cache_bytes: 64 << 30,
            occupied_bytes: 32 << 30,
            dirty_bytes: 8 << 30,
            dirty_percent: Some(12.5),
            rates: Some(rates),
        }
    }

    fn screen(rows: Vec<Row>) -> Screen {
        let mut screen = Screen::new(Duration::from_secs(1), Order { by: Sort::Name, reverse: false });
        screen.show(rows);
        screen
    }

    fn lines(screen: &Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    fn press(screen: &mut Screen, code: KeyCode) -> bool {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn eighty_columns_hold_every_column_whole() {
        let lines = lines(&screen(vec![row("osd0", 53_467.0)]), 80, 24);
        assert!(lines[0].starts_with("loligo   1 volume(s)   66k requests/s   every 1 s"), "{}", lines[0]);
        for head in HEADS {
            assert!(lines[1].contains(head), "{head}: {}", lines[1]);
        }
        let cells: Vec<&str> = lines[2].split_whitespace().collect();
        let want = ["osd0", "ok", "wb", "53k", "12k", "218", "0", "99", "12", "85u", "1.5m", "40"];
        assert_eq!(cells[..12], want, "{}", lines[2]);
        assert!(cells[12].starts_with("sequent"), "{}", lines[2]);
        assert!(lines[23].starts_with("q leave"));
    }

    #[test]
    fn the_pane_shows_the_chosen_volume_wherever_the_order_puts_it() {
        let mut screen = screen(vec![row("a", 10.0), row("b", 500.0)]);
        press(&mut screen, KeyCode::Down);
        press(&mut screen, KeyCode::Enter);
        let text = lines(&screen, 80, 24).join("\n");
        assert!(
            text.contains(" b ") && text.contains("32 GiB in use of 64 GiB, 8 GiB dirty (12.5 %)"),
            "{text}"
        );
        assert!(text.contains("sequential 1.2k/s, mode 2.0/s"), "{text}");
        assert!(text.contains("p50 85u  p99 1.5m  longest 2.2s"), "{text}");
        press(&mut screen, KeyCode::Char('s'));
        let shown = lines(&screen, 80, 24);
        assert!(shown[2].starts_with("b ") && shown[3].starts_with("a "), "{shown:?}");
        assert_eq!(screen.place(), Some(0));
        press(&mut screen, KeyCode::Char('r'));
        assert!(lines(&screen, 80, 24)[2].starts_with("a "));
    }

    #[test]
    fn a_volume_that_does_not_serve_is_shown_with_its_state_and_why() {
        let poisoned = Row { poisoned: true, why: Some("the cache failed".into()), ..row("p", 1.0) };
        let waiting = Row {
            state: "waiting".into(),
            why: Some("/dev/sdb is not there".into()),
            mode: None,
            rates: None,
            dirty_percent: None,
            ..row("w", 0.0)
        };
        let mut screen = screen(vec![poisoned, waiting]);
        press(&mut screen, KeyCode::Enter);
        let text = lines(&screen, 80, 24).join("\n");
        assert!(text.contains("POIS") && text.contains("the cache failed"), "{text}");
        assert!(text.contains("wait"), "{text}");
        press(&mut screen, KeyCode::Down);
        assert!(lines(&screen, 80, 24).join("\n").contains("/dev/sdb is not there"));
    }

    #[test]
    fn keys_end_it_and_set_the_interval_and_no_size_is_too_small() {
        let mut screen = screen(vec![row("a", 1.0)]);
        (0..20).for_each(|_| assert!(!press(&mut screen, KeyCode::Char('-'))));
        assert_eq!(screen.interval, FASTEST);
        (0..20).for_each(|_| assert!(!press(&mut screen, KeyCode::Char('+'))));
        assert_eq!(screen.interval, SLOWEST);
        press(&mut screen, KeyCode::Enter);
        for (width, height) in [(1, 1), (10, 3), (300, 100)] {
            lines(&screen, width, height);
        }
        assert!(press(&mut screen, KeyCode::Char('q')));
        assert!(screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        let empty = Screen::new(FASTEST, Order { by: Sort::Iops, reverse: false });
        assert!(lines(&empty, 80, 24)[1].contains("looking"));
    }
}
