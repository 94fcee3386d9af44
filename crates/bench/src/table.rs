//! One table, two forms: aligned text for a terminal, Markdown for `docs/results`.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};

/// A line under the head, none between rows.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A table whose first column is text and whose other columns are numbers.
#[derive(Debug, Clone)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column heads.
    pub fn new<'a>(head: impl IntoIterator<Item = &'a str>) -> Table {
        Table { head: head.into_iter().map(str::to_owned).collect(), rows: Vec::new() }
    }

    /// A table with a row for each of `items`.
    pub fn of<T, const N: usize>(
        head: [&str; N],
        items: &[T],
        mut row: impl FnMut(&T) -> [String; N],
    ) -> Table {
        let mut table = Table::new(head);
        items.iter().for_each(|item| table.row(row(item)));
        table
    }

    /// Adds a row; it must have as many cells as the head.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.head.len());
        self.rows.push(cells);
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(&self.head);
        for row in &self.rows {
            table.add_row(row.iter().map(|cell| loligo_log::one_line(cell)));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule: Vec<String> =
            (0..self.head.len()).map(|i| if i == 0 { "---" } else { "---:" }.to_owned()).collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}{}{rows}", line(&self.head), line(&rule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_hold_every_cell() {
        let mut table = Table::new(["phase", "IOPS"]);
        table.row(["read".to_owned(), "1,000".to_owned()]);
        assert_eq!(table.markdown(), "| phase | IOPS |\n| --- | ---: |\n| read | 1,000 |\n");
        let text = table.text();
        assert!(text.contains("phase") && text.contains("1,000"), "{text}");
    }
}
