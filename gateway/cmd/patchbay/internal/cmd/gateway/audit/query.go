package audit

import (
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// Options are the flags of the commands about the audit log.
type Options struct {
	cmdutil.Invocation
	Dir *string // of --dir, which belongs to "gateway audit"
}

// QueryOptions are the flags of "gateway audit query".
type QueryOptions struct {
	Options
	Since, Until                  string
	Caller, Server, Tool, Outcome string
	Limit                         int // 0 for all records

	from, to time.Time
}

func (f *QueryOptions) parse(now time.Time) (err error) {
	if err := f.checkOutcome(); err != nil {
		return err
	}
	if f.from, err = parseTime("--since", f.Since, now); err == nil {
		f.to, err = parseTime("--until", f.Until, now)
	}
	return err
}

// auditOutcomes are the outcomes of requests, and the events of records.
var auditOutcomes = []string{"ok", "error", "failed", "refused", "question", "intent", "end", "answer", "login",
	"drift", "config", "admin", "dropped", "torn", "retention"}

// checkOutcome rejects an outcome that no record can contain.
func (f *QueryOptions) checkOutcome() error {
	for _, known := range auditOutcomes {
		if f.Outcome == "" || config.Match([]string{f.Outcome}, known) {
			return nil
		}
	}
	return exit.UsageError(term.UnknownName("outcome", f.Outcome, auditOutcomes))
}

// callerNames returns the names by which a caller is found: as shown, and the subject.
func callerNames(caller string) []string {
	i := strings.LastIndexByte(caller, ' ')
	if i < 0 || !strings.Contains(caller[i:], ":") { // issuers are URIs
		return []string{caller}
	}
	return []string{caller, caller[:i]}
}

// parseTime returns the time of a flag: a time, a date, or how long ago.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	for _, format := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(format, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{},
		exit.UsageError(fmt.Errorf("invalid %s %q: want a time such as 2026-11-23T15:04:05Z, a date, or a "+
			"duration such as 2h for two hours ago", flag, text))
}

// matches reports whether a record is wanted. Records of the log itself are not.
func (f *QueryOptions) matches(e *audit.Entry) bool {
	like := func(pattern string, values ...string) bool {
		for _, v := range values {
			if v != "" && config.Match([]string{pattern}, v) {
				return true
			}
		}
		return pattern == ""
	}
	switch e.Event {
	case "segment", "open", "close", "checkpoint":
		return false
	}
	return (f.from.IsZero() || !e.Time.Before(f.from)) && (f.to.IsZero() || e.Time.Before(f.to)) &&
		like(f.Caller, callerNames(e.Caller)...) && like(f.Server, e.Server) && like(f.Tool, e.Target, e.Public) &&
		like(f.Outcome, e.Outcome, e.Event)
}

// NewCmdQuery returns the command "gateway audit query".
func NewCmdQuery(f *cmdutil.Factory, dir *string, run cmdutil.Run[*QueryOptions]) *cobra.Command {
	o := &QueryOptions{Options: Options{Dir: dir}}
	cmd := cmdutil.Command(f, "query", "Find records of the audit log", cobra.NoArgs, o, cmdutil.Or(run, query))
	flags := cmd.Flags()
	flags.StringVar(&o.Since, "since", "", "records from this `time` on: a time, a date, or how long ago, such as 2h")
	flags.StringVar(&o.Until, "until", "", "records before this `time`")
	flags.StringVar(&o.Caller, "caller", "",
		"records of callers with this `name`: the subject, or 'SUBJECT ISSUER'; * stands for any text")
	flags.StringVar(&o.Server, "server", "", "records of servers with this `name`")
	flags.StringVar(&o.Tool, "tool", "", "records of tools, prompts and resources with this `name` or URI")
	flags.StringVar(&o.Outcome, "outcome", "", "ok, error, failed, refused, question, or an `event` such as drift")
	flags.IntVarP(&o.Limit, "limit", "n", 0, "stop after `n` records")
	return cmd
}

func query(_ context.Context, o *QueryOptions) error {
	folder, _, err := auditLog(o.Factory, *o.Dir)
	if err != nil {
		return err
	}
	if err := o.parse(time.Now()); err != nil {
		return err
	}
	n := 0
	for e, err := range audit.Read(folder) {
		if err != nil {
			o.IO.Err.Printf("patchbay: %s", term.CleanLine(err.Error()))
			continue
		}
		if !o.matches(e) {
			continue
		}
		showAudit(o.Factory, e)
		if n++; n == o.Limit {
			break
		}
	}
	if n == 0 {
		o.IO.Err.Printf("No records match.")
	}
	return nil
}

// TailOptions are the flags of "gateway audit tail".
type TailOptions struct {
	Options
	Follow bool
	Lines  int
}

// NewCmdTail returns the command "gateway audit tail".
func NewCmdTail(f *cmdutil.Factory, dir *string, run cmdutil.Run[*TailOptions]) *cobra.Command {
	o := &TailOptions{Options: Options{Dir: dir}}
	cmd := cmdutil.Command(f, "tail", "Print the last records of the audit log", cobra.NoArgs, o, cmdutil.Or(run, tail))
	const lines = 20
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "print new records until Ctrl-C")
	cmd.Flags().IntVarP(&o.Lines, "lines", "n", lines, "print the last `n` records")
	return cmd
}

func tail(ctx context.Context, o *TailOptions) error {
	folder, _, err := auditLog(o.Factory, *o.Dir)
	if err != nil {
		return err
	}
	if !o.Follow {
		done, cancel := context.WithCancel(ctx)
		cancel() // after the present records
		ctx = done
	}
	for e, err := range audit.Follow(ctx, folder, o.Lines) {
		if err != nil {
			return err
		}
		showAudit(o.Factory, e)
	}
	if o.Follow {
		return context.Cause(ctx)
	}
	return nil
}

// showAudit prints a record as a line.
func showAudit(f *cmdutil.Factory, e *audit.Entry) {
	if f.Flags.JSON {
		f.IO.Out.Raw(e.Raw)
		return
	}
	what := e.Event
	if e.Outcome != "" && e.Outcome != e.Event {
		what += " " + e.Outcome
	}
	name := cmp.Or(e.Target, e.Public)
	took := ""
	if e.Outcome != "" {
		took = strconv.FormatFloat(e.Millis, 'f', 1, 64) + " ms"
	}
	note := string(e.Detail)
	if e.Error != nil {
		note = e.Error.Code + ": " + e.Error.Message
	}
	id := cmp.Or(e.ID, recordName(e))
	cells := []string{e.Time.Local().Format(time.DateTime), what, e.Caller, e.Server, name, took, id, note}
	for i, text := range cells {
		if cells[i] = term.Shorten(term.CleanLine(text), term.MaxNameShown); cells[i] == "" {
			cells[i] = "-"
		}
	}
	if f.IO.Out.Terminal {
		f.IO.Out.Heading(auditRow(strings.Fields("TIME EVENT CALLER SERVER NAME DURATION ID NOTE")))
		f.IO.Out.Println(auditRow(cells))
		return
	}
	f.IO.Out.Println(strings.TrimSuffix(strings.Join(cells, term.ColumnGap), term.ColumnGap+"-"))
}

// auditRow returns a row whose cells begin in fixed columns unless a cell is long, because the widths of later
// records are unknown.
func auditRow(cells []string) string {
	widths := []int{len(time.DateTime), 16, 20, 14, 24, 10, 24, 0}
	for i := range cells {
		cells[i] = term.Padded(cells[i], widths[i], false)
	}
	return strings.TrimRight(strings.Join(cells, term.ColumnGap), " ")
}

// recordName identifies a record of a log.
func recordName(e *audit.Entry) string { return e.Chain + "/" + strconv.FormatUint(e.Seq, 10) }

// findAudit returns the records with an ID: the records of a call, or a single record.
func findAudit(f *cmdutil.Factory, given, id string) (found []*audit.Entry, err error) {
	folder, _, err := auditLog(f, given)
	if err != nil {
		return nil, err
	}
	for e, err := range audit.Read(folder) {
		if err == nil && (e.ID == id || recordName(e) == id) {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		return nil, exit.NotFoundError(fmt.Errorf("no record with id %q in %s", id, folder))
	}
	return found, nil
}

func newCmdShow(f *cmdutil.Factory, dir *string) *cobra.Command {
	return cmdutil.Command(f, "show ID", "Show all records of a call", cobra.ExactArgs(1), &Options{Dir: dir}, show)
}

func show(_ context.Context, o *Options) error {
	found, err := findAudit(o.Factory, *o.Dir, o.Words[0])
	if err != nil {
		return err
	}
	var raw []stdjson.RawMessage
	for _, e := range found {
		raw = append(raw, e.Raw)
	}
	if o.Flags.JSON {
		text, err := stdjson.Marshal(map[string]any{"records": raw})
		if err == nil {
			o.IO.Out.Raw(text)
		}
		return err
	}
	for _, e := range found {
		o.IO.Out.Printf("%s", term.CleanLine(recordName(e)))
		o.IO.Out.Raw(e.Raw)
	}
	return nil
}

// auditLog returns the folders of the log that a command reads. The log must exist.
func auditLog(f *cmdutil.Factory, given string) (dir, heads string, err error) {
	settings, err := auditSettings(f)
	if err != nil && given == "" {
		return "", "", exit.UsageError(err)
	}
	if dir, heads, err = hosting.AuditDirs(settings, given); err != nil {
		return "", "", err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err == nil && len(found) > 0 {
		return dir, heads, nil
	}
	text := fmt.Sprintf("no audit log in %s", dir)
	if settings == nil && given == "" {
		text += `: add "audit": {} to the member patchbay of the configuration, or name a folder with --dir`
	}
	return dir, heads, exit.NotFoundError(errors.New(text))
}

// auditSettings returns the member audit of the settings, or nil.
func auditSettings(p *cmdutil.Factory) (*gatewayconfig.Audit, error) {
	for f, err := range configs.Files(p.Flags.Config) {
		if err != nil {
			if p.Config.NamesConfig() {
				return nil, err
			}
			continue
		}
		_, has := f.Extra["patchbay"]
		if !has || f.Project || !p.Config.NamesConfig() && f.App != "patchbay" {
			continue
		}
		s, err := gatewayconfig.Read(f.File)
		if err != nil {
			return nil, err
		}
		return s.Audit, nil
	}
	return nil, nil
}
