// Package man writes the manual pages.
package man

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// Options are the arguments of "man".
type Options struct {
	*cmdutil.Factory
	Root *cobra.Command
	Dir  string
}

// NewCmdMan returns the command "man".
func NewCmdMan(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	return &cobra.Command{
		Use:                   "man DIR",
		Short:                 "Write the manual pages to a directory",
		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.UsageError(fmt.Errorf("wrong number of arguments\nusage: %s", cmd.UseLine()))
			}
			return cmdutil.Or(run, writeManuals)(cmd.Context(), &Options{f, cmd.Root(), args[0]})
		},
	}
}

func writeManuals(_ context.Context, o *Options) error {
	for _, section := range []string{"man1", "man7"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, section), 0o755); err != nil {
			return err
		}
	}
	pages := []string{}
	var write func(cmd *cobra.Command) error
	write = func(cmd *cobra.Command) error {
		file := filepath.Join("man"+ManSection(cmd), ManName(cmd)+"."+ManSection(cmd)) // as man searches
		pages = append(pages, file)
		if err := os.WriteFile(filepath.Join(o.Dir, file), []byte(manual(cmd)), 0o644); err != nil {
			return err
		}
		for _, sub := range Documented(cmd) {
			if err := write(sub); err != nil {
				return err
			}
		}
		return nil
	}
	if err := write(o.Root); err != nil {
		return err
	}
	if o.PrintedJSON(map[string][]string{"pages": pages}) {
		return nil
	}
	o.IO.Err.Printf("Wrote %d pages. To read: man -M %s patchbay", len(pages), term.CleanLine(term.ShellWord(o.Dir)))
	return nil
}

// Documented returns the subcommands that have a page.
func Documented(cmd *cobra.Command) (all []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			all = append(all, sub)
		}
	}
	return all
}

// ManName returns the name of the manual page of a command.
func ManName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// ManSection returns the section of the manual: 1 for commands, 7 for help topics.
func ManSection(cmd *cobra.Command) string {
	if cmd.Runnable() {
		return "1"
	}
	return "7"
}

// manual returns the page of a command, in the language man of troff.
func manual(cmd *cobra.Command) string {
	var b strings.Builder
	name, section := ManName(cmd), ManSection(cmd)
	fmt.Fprintf(&b, ".TH \"%s\" \"%s\" \"\" \"patchbay %s\" \"Patchbay\"\n", strings.ToUpper(name), section,
		build.Version())
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", Roff(name), Roff(cmd.Short))
	if cmd.Runnable() {
		b.WriteString(".SH SYNOPSIS\n")
		for form := range strings.SplitSeq(cmd.UseLine(), " | ") {
			if parent := cmd.Parent(); parent != nil && !strings.HasPrefix(form, parent.CommandPath()+" ") {
				form = parent.CommandPath() + " " + form
			}
			fmt.Fprintf(&b, ".nf\n%s\n.fi\n", Roff(form))
		}
	}
	if cmd.Long != "" {
		b.WriteString(".SH DESCRIPTION\n" + roffText(cmd.Long))
	}
	if subs := Documented(cmd); len(subs) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range subs {
			fmt.Fprintf(&b, ".TP\n.BR %s (%s)\n%s\n", Roff(ManName(sub)), ManSection(sub), Roff(sub.Short))
		}
	}
	if cmd.Runnable() {
		const width = 76 // columns of a page on a terminal, without its margin
		flags := roffText(strings.TrimRight(cmd.LocalNonPersistentFlags().FlagUsagesWrapped(width)+
			cmd.PersistentFlags().FlagUsagesWrapped(width), "\n"))
		b.WriteString(".SH OPTIONS\n" + flags)
		if cmd.HasParent() && flags != "" {
			b.WriteString(".PP\n")
		}
		if cmd.HasParent() {
			b.WriteString("The options of\n.BR patchbay (1)\napply, too.\n")
		}
	}
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n" + roffText(cmd.Example))
	}
	if parent := cmd.Parent(); parent != nil {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", Roff(ManName(parent)))
	}
	return b.String()
}

// roffText returns paragraphs. Indented lines, such as those of a table, are kept as they are.
func roffText(text string) string {
	var b strings.Builder
	if text == "" {
		return ""
	}
	isKept, isBegun := false, true // a heading is before it
	for line := range strings.SplitSeq(text, "\n") {
		keep := strings.HasPrefix(line, " ") || line == "" && isKept
		switch {
		case keep && !isKept && b.Len() == 0:
			b.WriteString(".nf\n")
		case keep && !isKept:
			b.WriteString(".PP\n.nf\n")
		case !keep && isKept:
			b.WriteString(".fi\n.PP\n")
		case line == "" && !keep:
			isBegun = false
			continue
		case !keep && !isBegun:
			b.WriteString(".PP\n")
		}
		isKept, isBegun = keep, true
		b.WriteString(Roff(line) + "\n")
	}
	if isKept {
		b.WriteString(".fi\n")
	}
	return b.String()
}

// Roff returns a line of text that means itself to troff.
func Roff(line string) string {
	var b strings.Builder
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		b.WriteString(`\&`)
	}
	for _, r := range line {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case strings.ContainsRune("-'`^~", r): // typographic by default
			b.WriteString(map[rune]string{'-': `\-`, '\'': `\(aq`, '`': `\(ga`, '^': `\(ha`, '~': `\(ti`}[r])
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
