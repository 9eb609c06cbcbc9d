package status

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/layout"
)

// watchTime is how long one answer is waited for before a screen reports that none comes.
const watchTime = 10 * time.Second

// watchStatus shows the results of ask on the terminal, until the user quits or ctx ends.
func watchStatus(ctx context.Context, a *app.App, every time.Duration, ask func(context.Context) (*status, error)) error {
	out := a.Terminal()
	in, ok := a.In.(*os.File)
	if out == nil || !ok || !term.IsTerminal(int(in.Fd())) {
		return app.Usage("--watch is for a terminal: standard input or output is none")
	}
	a.SetHeard() // the screen itself shows the wait
	s := &screen{every: every, ask: ask, view: a.ViewOf(), now: time.Now}
	return s.run(ctx, out, tea.WithInput(in))
}

// screen is a status that is drawn again and again. Its methods are called by one goroutine.
type screen struct {
	every  time.Duration
	ask    func(context.Context) (*status, error)
	now    func() time.Time
	ctx    context.Context // of the questions
	view   layout.View
	height int // of the terminal; 0: not known
	top    int // the first line that is shown

	last   *status // nil: none yet
	lastAt time.Time
	err    error // of the newest question
}

// answer is the result of a request.
type answer struct {
	status *status
	err    error
	at     time.Time
}

// tick is the signal for the next request.
type tick struct{}

// run draws on out until q is pressed or ctx ends.
func (s *screen) run(ctx context.Context, out io.Writer, options ...tea.ProgramOption) error {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	s.ctx = asking
	options = append(options, tea.WithContext(ctx), tea.WithOutput(out), tea.WithoutSignalHandler())
	_, err := tea.NewProgram(s, options...).Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Init sends the first request.
func (s *screen) Init() tea.Cmd { return s.question }

func (s *screen) question() tea.Msg {
	ctx, cancel := context.WithTimeout(s.ctx, watchTime)
	defer cancel()
	got, err := s.ask(ctx)
	return answer{got, err, s.now()}
}

// Update handles an event.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.view.Width, s.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return s, s.key(msg.String())
	case tick:
		return s, s.question
	case answer:
		if s.err = msg.err; msg.err == nil {
			s.last, s.lastAt = msg.status, msg.at
		}
		return s, tea.Tick(s.every, func(time.Time) tea.Msg { return tick{} })
	}
	return s, nil
}

func (s *screen) key(name string) tea.Cmd {
	page := max(1, s.height-2)
	switch name {
	case "q", "esc", "ctrl+c":
		return tea.Quit
	case "down", "j":
		s.top++
	case "up", "k":
		s.top--
	case "pgdown", "space":
		s.top += page
	case "pgup":
		s.top -= page
	case "home", "g":
		s.top = 0
	}
	return nil
}

// View returns the screen, which is all of the terminal.
func (s *screen) View() tea.View {
	v := tea.NewView(strings.Join(s.lines(), "\n"))
	v.AltScreen = true
	return v
}

func (s *screen) lines() []string {
	lines := s.head()
	if s.last != nil {
		body := s.last.lines(s.view, s.now())
		lines = append(lines, s.window(body, s.height-len(lines))...)
	}
	return lines
}

// head returns the lines that stay at the top.
func (s *screen) head() []string {
	m := layout.Message{Text: fmt.Sprintf("%s, every %v; q leaves", s.now().Format(time.TimeOnly), s.every), Style: layout.Heading}
	switch {
	case s.err != nil && s.last != nil:
		m = layout.Message{Text: fmt.Sprintf("no answer since %s, q leaves: %s", s.lastAt.Format(time.TimeOnly), app.OneLineOf(s.err)), Style: layout.Bad}
	case s.err != nil:
		m = layout.Message{Text: "no answer yet, q leaves: " + app.OneLineOf(s.err), Style: layout.Bad}
	case s.last == nil:
		m = layout.Message{Text: "asking; q leaves", Style: layout.Heading}
	}
	return s.view.Lines(m)
}

// window returns the part of lines that fits into a height, from s.top, which it corrects.
func (s *screen) window(lines []string, height int) []string {
	if s.height <= 0 || len(lines) <= height {
		s.top = 0
		return lines
	}
	height = max(height-1, 0) // the last one counts the lines left out
	s.top = min(max(s.top, 0), len(lines)-height)
	rest := fmt.Sprintf("lines %d to %d of %d", s.top+1, s.top+height, len(lines))
	return append(lines[s.top:s.top+height:s.top+height], s.view.Lines(layout.Message{Text: rest, Style: layout.Heading})[0])
}
