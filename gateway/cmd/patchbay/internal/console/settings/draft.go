package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/diff"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

// A draft is an edited text of the configuration file. It is immutable: the next check makes
// another draft.
type draft struct {
	Text    string
	Version string // of the text that was edited

	ID       string // "" before the check
	Err      string // why the text cannot be saved
	Same     bool   // the text does not differ from the file
	Lines    []diff.Line
	Commands []command // see [gateway.ConfigResult]
	Refused  bool      // a remote console saves none of them
}

// A command is a new command line, a new address with the data that it receives, or a setting that
// only the local user may change.
type command struct {
	Line []string
	JSON string // the value of its confirmation
}

// check asks the gateway for the changes of an edited text, without writing it.
func (s *screen) check(r *page.Request) (*page.Outcome, error) {
	d := draft{Text: strings.ReplaceAll(r.PostFormValue("text"), "\r\n", "\n"), Version: r.PostFormValue("version")}
	res, err := put(r, &d, true)
	var p *gateway.Problem
	switch {
	case errors.As(err, &p) && p.Status < http.StatusInternalServerError:
		d.Err = page.ErrorText(err)
	case err != nil:
		return nil, err
	default:
		d.Same, d.Lines = !res.Changed, diffLines(res.Diff)
		for _, line := range res.Commands {
			text, err := json.Marshal(line)
			if err != nil {
				return nil, err
			}
			d.Commands = append(d.Commands, command{line, string(text)})
		}
		d.Refused = s.isRemote(r) && len(d.Commands) > 0
	}
	location, err := page.Link("/settings", "draft", s.drafts.Add(d))
	return &page.Outcome{Location: location + "#edit"}, err
}

// save writes a draft after its changes and each new command line and address were confirmed. The
// gateway refuses it if the file changed since the check.
func (s *screen) save(r *page.Request) (*page.Outcome, error) {
	if err := r.ParseForm(); err != nil {
		return nil, err
	}
	d, ok := s.drafts.Get(r.PostFormValue("draft"))
	refuse := func(status int, code, format string, args ...any) (*page.Outcome, error) {
		return nil, &gateway.Problem{Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case !ok || d.Err != "":
		return refuse(http.StatusConflict, "unchecked_edit",
			"the edit is no longer kept, or cannot be saved: check the changes again; nothing was changed")
	case s.isRemote(r) && len(d.Commands) > 0:
		return refuse(http.StatusForbidden, "remote_command",
			"the edit changes %.200q, which only the local user may do: edit the file on the machine of the gateway; "+
				"nothing was changed", strings.Join(d.Commands[0].Line, " "))
	}
	for _, c := range d.Commands {
		if !slices.Contains(r.PostForm["command"], c.JSON) {
			return refuse(http.StatusConflict, "unconfirmed_command",
				"%.200q was not confirmed: select each new command line, address and setting; nothing was changed",
				strings.Join(c.Line, " "))
		}
	}
	res, err := put(r, &d, false)
	if err != nil {
		return nil, err
	}
	location, err := page.Link("/settings", "done", s.notices.Add(notice{Saved: res}))
	return &page.Outcome{Location: location}, err
}

// diffLines returns the lines of a unified difference.
func diffLines(text string) (lines []diff.Line) {
	for line := range strings.Lines(text) {
		l := diff.Line{Kind: diff.Same, Mark: " ", Text: strings.TrimRight(line, "\n")}
		switch {
		case strings.HasPrefix(line, "--- "), strings.HasPrefix(line, "+++ "), strings.HasPrefix(line, "@@"):
		case strings.HasPrefix(line, "+"):
			l.Kind, l.Mark, l.Text = diff.Added, "+", l.Text[1:]
		case strings.HasPrefix(line, "-"):
			l.Kind, l.Mark, l.Text = diff.Removed, "-", l.Text[1:]
		case strings.HasPrefix(line, " "):
			l.Text = l.Text[1:]
		}
		lines = append(lines, l)
	}
	return lines
}
