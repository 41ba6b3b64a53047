// Package check runs the saved calls of a file.
package check

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/check"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configedit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Options are the flags of "check". The Words contain the file.
type Options struct {
	cmdutil.Invocation
	JUnit  string   // file of the JUnit report
	Only   []string // names of calls
	Update bool     // write the actual values into the file
	Trust  bool     // do not ask about the file
}

// NewCmdCheck returns the command "check".
func NewCmdCheck(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	cmd := cmdutil.Command(f, "check FILE [TARGET] | check FILE -- COMMAND…",
		"Run the saved calls of a file and compare their results with assertions", nil, o, nil)
	cmd.Flags().StringVar(&o.JUnit, "junit", "", "write a JUnit report to this `file`")
	cmd.Flags().StringArrayVar(&o.Only, "only", nil, "run the call of this `name`, and the earlier calls whose "+
		"variables it uses; may be repeated")
	cmd.Flags().BoolVar(&o.Update, "update", false, "write actual values into failed assertions, and print the change")
	cmd.Flags().BoolVar(&o.Trust, "trust", false, "trust the file: start its target and replace its variables unasked")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return f.Config.TargetNames(typed), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveDefault
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.Words, err = o.parse(cmd, args); err != nil {
			return exit.UsageError(err)
		}
		return cmdutil.Or(run, start)(cmd.Context(), o)
	}
	return cmd
}

// parse returns the file, and sets the target if the command line names one.
func (o *Options) parse(cmd *cobra.Command, args []string) (words []string, err error) {
	words, dash := args, cmd.ArgsLenAtDash()
	if dash >= 0 {
		words = args[:dash]
	}
	switch {
	case len(words) == 1 && dash == len(args):
		return nil, errors.New("missing command after --")
	case len(words) == 1 && dash > 0:
		o.Target = &target.Target{Command: args[dash:]}
	case len(words) == 2 && dash < 0:
		if o.Target, err = o.Config.Named(cmd.Context(), args[1], o.Config.AskTrust); err == nil {
			o.Target.Name = args[1]
		}
	case len(words) != 1:
		err = errors.New("wrong number of arguments\nusage: " + cmd.UseLine())
	}
	return words[:min(len(words), 1)], err
}

func start(ctx context.Context, o *Options) error {
	file, err := check.Load(o.Words[0])
	if err == nil {
		o.Target, err = file.Target(ctx, o.Config, o.Target, o.Trust)
	}
	if err == nil {
		err = o.Config.AddToTarget(ctx, o.Target)
	}
	if err != nil {
		return exit.UsageError(err)
	}
	report, err := file.Run(ctx, o.options(file))
	if err != nil {
		return exit.UsageError(err) // of --only, unless the user interrupts
	}
	report.Target = o.Target.String()
	old, complete := file.Text(), report.Failed+report.Errors == 0
	if o.Update {
		if complete, err = file.Update(report, o.Target.Masked); err == nil && !bytes.Equal(old, file.Text()) {
			err = file.Save(old)
		}
	}
	if err == nil && o.JUnit != "" {
		var b bytes.Buffer
		err = errors.Join(report.WriteJUnit(&b), os.WriteFile(o.JUnit, b.Bytes(), 0o644))
	}
	if !o.PrintedJSON(report) {
		o.IO.Out.Write(term.Clean(configedit.DiffText(file.Path, string(old), string(file.Text()))))
		o.IO.Out.Printf("%s: %d passed, %d failed, %d not complete", term.Counted(len(report.Calls), "call"),
			report.Passed, report.Failed, report.Errors)
	}
	if err != nil || complete {
		return err
	}
	return &exit.Error{Code: report.ExitCode(), Err: exit.ErrShown}
}

// options returns how to connect, to answer and to hide secrets.
func (o *Options) options(file *check.File) *check.Options {
	byFlag := o.Flags.Answers
	return &check.Options{Only: o.Only, Revision: o.Flags.Revision, Mask: o.Target.Masked,
		Close: o.Client.Close,
		Dial: func(ctx context.Context, revision string, adjust func(*mcp.ClientOptions)) (*mcp.Client, error) {
			o.Flags.Revision, o.Flags.Answers, o.Client.Adjust = revision, byFlag, adjust
			return o.Client.Dial(ctx, o.Target)
		},
		Answer: func(ctx context.Context, name string) (err error) {
			select {
			case o.Ask.Lock <- struct{}{}: // a question of an earlier call may still be answered
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			defer func() { <-o.Ask.Lock }()
			name = cmp.Or(name, byFlag)
			o.Flags.Answers, o.Ask.Answers = name, nil
			if name != "" {
				o.Ask.Answers, err = question.LoadAnswers(ctx, name)
			}
			return err
		},
		Done: func(c *check.Outcome) {
			o.IO.Err.Done()
			if !o.Flags.JSON {
				o.IO.Out.Printf("%s", c.Text(file.Path))
			}
		}}
}
