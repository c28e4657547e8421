//! How it is drawn.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table, TableState};

use super::view::{Column, View};

const HELP: &str = "q quit  left/right sort  r reverse  up/down scroll";

/// Draws a view from its row `scrolled` on; `problem` says why it may be old. `is_plain`: without colours.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View, problem: Option<&str>, scrolled: usize, is_plain: bool) {
    let colored = |color: Color| {
        if is_plain { Style::new() } else { Style::new().fg(color) }
    };
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    frame.render_widget(Line::styled(view.summary.as_str(), Modifier::BOLD), top);
    let title = |column: &Column| {
        let mark = match (*column == view.sorting.column, view.sorting.is_reversed) {
            (false, _) => "",
            (true, false) => " v",
            (true, true) => " ^",
        };
        format!("{}{mark}", column.title())
    };
    let titles: Vec<String> = Column::ALL.iter().map(title).collect();
    let shown = || view.rows.iter().skip(scrolled);
    let width = |place: usize| {
        let cells = shown().filter_map(|row| row.get(place)).chain([&titles[place]]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default() as u16
    };
    let widths: Vec<Constraint> = (0..Column::ALL.len())
        .map(|place| Constraint::Length(width(place)))
        .collect();
    let rows = shown().map(|row| Row::new(row.iter().map(String::as_str)));
    let table = Table::new(rows, widths)
        .header(
            Row::new(titles.iter().map(String::as_str)).style(colored(Color::Cyan).add_modifier(Modifier::REVERSED)),
        )
        .column_spacing(2);
    frame.render_stateful_widget(table, middle, &mut TableState::new());
    let (text, style) = match problem {
        Some(problem) => (problem, colored(Color::Red).add_modifier(Modifier::BOLD)),
        None => (HELP, colored(Color::DarkGray)),
    };
    frame.render_widget(Line::styled(text, style), bottom);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::view::Sorting;
    use super::*;

    fn drawn(view: &View, problem: Option<&str>, scrolled: usize, is_plain: bool) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(76, 5)).unwrap();
        terminal
            .draw(|frame| draw(frame, view, problem, scrolled, is_plain))
            .unwrap();
        terminal
    }

    fn view() -> View {
        let row = |name: &str| {
            let cells = [name, "1.0 MiB", "0 B", "-", "50.00 %", "-", "0.125", "9.5", "surplus"];
            cells.map(str::to_owned).to_vec()
        };
        View {
            summary: "summary".into(),
            rows: vec![row("a"), row("b"), row("c")],
            sorting: Sorting {
                column: Column::Grant,
                is_reversed: false,
            },
        }
    }

    #[test]
    fn as_many_rows_as_fit_are_drawn_from_the_one_scrolled_to() {
        let lines = |scrolled| {
            let terminal = drawn(&view(), None, scrolled, true);
            terminal.backend().to_string()
        };
        let first = lines(0);
        assert!(first.contains("GRANT v") && first.contains("q quit"), "{first}");
        assert!(
            first.contains("\"a  ") && first.contains("\"b  ") && !first.contains("\"c  "),
            "{first}"
        );
        let second = lines(1);
        assert!(
            !second.contains("\"a  ") && second.contains("\"b  ") && second.contains("\"c  "),
            "{second}"
        );
    }

    #[test]
    fn colours_are_left_out_where_they_are_not_wanted() {
        for (is_plain, expected) in [(true, false), (false, true)] {
            let terminal = drawn(&view(), Some("the server is gone"), 0, is_plain);
            let cells = terminal.backend().buffer().content();
            let has_colour = cells.iter().any(|cell| cell.fg != Color::Reset);
            assert_eq!(has_colour, expected);
            assert!(terminal.backend().to_string().contains("the server is gone"));
        }
    }
}
