package shell

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/argument"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/uritemplate"
)

const (
	// maxCandidates limits the completions of a word: a longer list does not help a user to choose.
	maxCandidates = 200
	// maxCandidate limits a completion, in bytes: longer text would fill the terminal.
	maxCandidate = 200
	// maxListed bounds the items that completion reads from a list of the server.
	maxListed = 1000
	// listFresh is how long completion uses a list of the server. Notifications of changes end it.
	listFresh = 30 * time.Second
	// maxCached bounds the cached lists and completions.
	maxCached = 200
)

// cached returns the value of a key. It calls load if the cache holds no value or an old value.
func cached[T any](l *listCache, key string, load func() T) T {
	l.mu.Lock()
	entry, ok := l.entries[key]
	l.mu.Unlock()
	if value, is := entry.value.(T); ok && is && time.Now().Before(entry.until) {
		return value
	}
	value := load()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries == nil || len(l.entries) >= maxCached {
		l.entries = map[string]cachedList{}
	}
	l.entries[key] = cachedList{value, time.Now().Add(listFresh)}
	return value
}

// forget removes the entries that an event may have outdated.
func (l *listCache) forget(kind mcp.EventKind) {
	if kind != mcp.EventListening && kind != mcp.EventResourceUpdated {
		l.clear()
	}
}

// listed returns the items of a list of the server, at most maxListed, even after an error.
func listed[T any](l *listCache, key string, all iter.Seq2[T, error]) []T {
	return cached(l, key, func() (list []T) {
		for item, err := range all {
			if err != nil || len(list) == maxListed {
				break
			}
			list = append(list, item)
		}
		return list
	})
}

// A lineCompleter completes lines. It implements readline.AutoCompleter.
type lineCompleter struct{ shell *Shell }

// Do returns the rest of each completion of line[:pos], and how much of it was typed.
func (c *lineCompleter) Do(line []rune, pos int) (rests [][]rune, typedLength int) {
	before := string(line[:pos])
	words, last, err := term.ScanWords(before)
	if last.Comment {
		return nil, 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), cmdutil.CompletionTimeout)
	defer cancel()
	all := c.shell.candidates(ctx, words, last.Text)
	for _, candidate := range all {
		rest := candidate[len(last.Text):]
		if len(all) == 1 && !strings.HasSuffix(candidate, "=") && err == nil {
			rest += " "
		}
		rests = append(rests, []rune(rest))
	}
	return rests, len([]rune(last.Text))
}

// withoutBraces removes the braces of URI templates, which this shell does not expand.
var withoutBraces = strings.NewReplacer("{", "", "}", "")

// candidates returns the completions of a word after others. They are safe to show and to insert.
func (s *Shell) candidates(ctx context.Context, words []string, typed string) (safe []string) {
	q := s.newFactory(term.NewInput(strings.NewReader("")))
	all := s.suggestions(ctx, q, words, typed)
	if strings.HasPrefix(typed, "-") {
		return slices.DeleteFunc(all, func(flag string) bool { return !strings.HasPrefix(flag, typed) })
	}
	seen := map[string]bool{}
	for _, name := range all {
		if !strings.HasPrefix(name, typed) || len(name) > maxCandidate || seen[name] ||
			!target.IsSafeWord(withoutBraces.Replace(name)) {
			continue
		}
		seen[name] = true
		if safe = append(safe, name); len(safe) == maxCandidates {
			break
		}
	}
	return safe
}

// liveClient returns the client of the shell, or nil if its connection has ended.
func (s *Shell) liveClient() *mcp.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	return s.client
}

// suggestions returns the completions of typed after words.
func (s *Shell) suggestions(ctx context.Context, q *cmdutil.Factory, words []string, typed string) []string {
	verbs := s.Verbs(q)
	var names []string
	for _, cmd := range verbs {
		names = append(names, cmd.Name())
	}
	c := s.liveClient()
	switch {
	case len(words) == 0 && c != nil:
		return append(append(names, "help", "exit"), s.lists.listedTools(ctx, c)...)
	case len(words) == 0:
		return append(names, "help", "exit")
	case words[0] == "help" && len(words) == 1:
		return append(names, "arguments", "answers", "json", "exit-codes", "errors")
	}
	cmd, rest := findVerb(verbs, words[0]), words[1:]
	if cmd == nil {
		cmd, rest = findVerb(verbs, "call"), words
	}
	prepareVerb(q, cmd, words)
	if cmd.HasSubCommands() {
		if len(rest) == 0 {
			return subcommandNames(cmd)
		}
		sub, after, err := cmd.Find(rest)
		if err != nil || sub == cmd {
			return nil
		}
		cmd, rest = sub, after
	}
	if strings.HasPrefix(typed, "-") {
		return flagNames(cmd)
	}
	rest = slices.DeleteFunc(slices.Clone(rest), func(word string) bool { return strings.HasPrefix(word, "-") })
	if c == nil {
		return nil
	}
	return s.argumentsOf(ctx, c, cmd, rest, typed)
}

func subcommandNames(cmd *cobra.Command) (names []string) {
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	return names
}

func flagNames(cmd *cobra.Command) (names []string) {
	for line := range strings.Lines(cmd.LocalFlags().FlagUsages() + cmd.InheritedFlags().FlagUsages()) {
		if name := strings.Fields(line)[0]; strings.HasPrefix(name, "--") {
			names = append(names, name)
		}
	}
	return names
}

// argumentsOf returns the completions of typed after the words of a verb.
func (s *Shell) argumentsOf(ctx context.Context, c *mcp.Client, cmd *cobra.Command, words []string, typed string,
) []string {
	switch name := cmd.CommandPath(); {
	case name == "call" && len(words) > 0:
		return s.lists.toolArguments(ctx, c, words, typed)
	case name == "get" && len(words) > 0:
		return s.lists.completeReference(ctx, c, mcp.CompleteParams{Prompt: words[0]}, words[1:], typed)
	case name == "read" && len(words) == 0:
		return append(s.lists.resourceNames(ctx, c), s.lists.templateNames(ctx, c)...)
	case name == "read":
		return s.lists.completeReference(ctx, c, mcp.CompleteParams{Template: words[0]}, words[1:], typed)
	case name == "complete" && len(words) == 0:
		return append(s.lists.promptNames(ctx, c), s.lists.templateNames(ctx, c)...)
	case name == "complete" && strings.ContainsAny(words[0], ":{"):
		return s.lists.completeReference(ctx, c, mcp.CompleteParams{Template: words[0]}, words[1:], typed)
	case name == "complete":
		return s.lists.completeReference(ctx, c, mcp.CompleteParams{Prompt: words[0]}, words[1:], typed)
	case cmd.ValidArgsFunction == nil:
		return nil
	}
	cmd.SetContext(ctx)
	names, _ := cmd.ValidArgsFunction(cmd, words, typed)
	return names
}

// toolArguments returns keys of arguments that words does not contain, or values of a key.
func (l *listCache) toolArguments(ctx context.Context, c *mcp.Client, words []string, typed string) []string {
	tools := listed(l, "tools", c.Tools(ctx))
	at := slices.IndexFunc(tools, func(t *mcp.Tool) bool { return t.Name == words[0] })
	if at < 0 {
		return nil
	}
	parameters, _ := argument.ParametersOf(tools[at].InputSchema)
	return cmdutil.CompleteParameters(parameters, words[1:], typed)
}

// completeReference returns the arguments of a prompt, or the variables of a resource template,
// that words does not contain. After a key it returns the values that the server suggests.
func (l *listCache) completeReference(
	ctx context.Context, c *mcp.Client, ref mcp.CompleteParams, words []string, typed string,

) (all []string) {
	key, value, isValue := strings.Cut(typed, "=")
	names := l.referenceArguments(ctx, c, ref)
	if !isValue {
		for _, name := range names {
			if !cmdutil.IsGiven(name, words) {
				all = append(all, name+"=")
			}
		}
		return all
	}
	known := map[string]string{}
	for _, word := range words {
		if name, value, ok := strings.Cut(word, "="); ok && slices.Contains(names, name) {
			known[name] = value
		}
	}
	if !slices.Contains(names, key) || c.Capabilities().Completions == nil {
		return nil
	}
	values := cached(l, "prompt "+ref.Prompt+"\x00template "+ref.Template+"\x00"+strings.Join(words, "\x00")+
		"\x00\x00"+typed, func() []string {
		ref.Argument, ref.Value, ref.Arguments = key, value, known
		completion, err := c.Complete(ctx, &ref)
		if err != nil {
			return nil
		}
		return completion.Values
	})
	for _, value := range values {
		all = append(all, cmdutil.Assignment(key, value)...)
	}
	return all
}

// referenceArguments returns the names of a prompt's arguments or of a template's variables.
func (l *listCache) referenceArguments(ctx context.Context, c *mcp.Client, ref mcp.CompleteParams) (names []string) {
	if ref.Template != "" {
		if template, err := uritemplate.Parse(ref.Template); err == nil {
			names = template.Variables()
		}
		return names
	}
	for _, prompt := range listed(l, "prompts", c.Prompts(ctx)) {
		if prompt.Name == ref.Prompt {
			for _, a := range prompt.Arguments {
				names = append(names, a.Name)
			}
		}
	}
	return names
}

// CompleteNames returns the names of a command's argument from the server.
func (s *Shell) CompleteNames(
	ctx context.Context, verb string, names func(context.Context, *mcp.Client) []string, words []string,

) []string {
	c := s.liveClient()
	several := verb == "listen" || strings.HasSuffix(verb, "subscribe")
	if names == nil || c == nil || len(words) > 0 && !several {
		return nil
	}
	return cached(&s.lists, "names "+verb, func() []string { return names(ctx, c) })
}

func (l *listCache) listedTools(ctx context.Context, c *mcp.Client) []string {
	return cmdutil.Names(listed(l, "tools", c.Tools(ctx)), cmdutil.ToolName)
}

func (l *listCache) promptNames(ctx context.Context, c *mcp.Client) []string {
	return cmdutil.Names(listed(l, "prompts", c.Prompts(ctx)), cmdutil.PromptName)
}

func (l *listCache) resourceNames(ctx context.Context, c *mcp.Client) []string {
	return cmdutil.Names(listed(l, "resources", c.Resources(ctx)), cmdutil.ResourceURI)
}

func (l *listCache) templateNames(ctx context.Context, c *mcp.Client) []string {
	return cmdutil.Names(listed(l, "templates", c.ResourceTemplates(ctx)),
		func(t *mcp.ResourceTemplate) string { return t.URITemplate })
}

// NotedTasks returns the ids of tasks that were started at the server, for the first argument.
func (s *Shell) NotedTasks(words []string, typed string) (ids []string) {
	if len(words) > 0 {
		return nil
	}
	known, _ := target.NotesOf(s.target) // ids before an error are useful
	for _, n := range known {
		ids = append(ids, n.ID)
	}
	return target.Matching(ids, typed)
}
