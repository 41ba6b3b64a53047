// Package read reads resources, gets prompts and completes their arguments.
package read

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/argument"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/content"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// NewCmdRead returns the command "read". names lists the URIs for completion.
func NewCmdRead(f *cmdutil.Factory, names cmdutil.Lister, run cmdutil.Run[*cmdutil.Invocation]) *cobra.Command {
	return cmdutil.TargetCommand(f, "read URI [VARIABLE=VALUE…]", "Read a resource", names, &cmdutil.Invocation{},
		cmdutil.Or(run, cmdutil.Connected(read)))
}

// NewCmdGet returns the command "get". names lists the prompts for completion.
func NewCmdGet(f *cmdutil.Factory, names cmdutil.Lister, run cmdutil.Run[*cmdutil.Invocation]) *cobra.Command {
	return cmdutil.CompleteArguments(f, cmdutil.TargetCommand(f, "get PROMPT [ARGUMENT…]", "Get a prompt", names,
		&cmdutil.Invocation{}, cmdutil.Or(run, cmdutil.Connected(get))), cmdutil.PromptArguments)
}

// NewCmdComplete returns the command "complete". names lists the prompts for completion.
func NewCmdComplete(f *cmdutil.Factory, names cmdutil.Lister, run cmdutil.Run[*cmdutil.Invocation]) *cobra.Command {
	return cmdutil.CompleteArguments(f, cmdutil.TargetCommand(f, "complete REFERENCE ARGUMENT=TYPED [KNOWN=VALUE…]",
		"Complete an argument of a prompt or resource template", names, &cmdutil.Invocation{},
		cmdutil.Or(run, cmdutil.Bounded(complete))), cmdutil.PromptArguments)
}

// read reads a resource and prints its contents.
func read(ctx context.Context, o *cmdutil.Invocation, c *mcp.Client) error {
	uri := o.Words[0]
	if len(o.Words) > 1 {
		variables, err := argument.Assignments(o.Words[1:])
		if err != nil {
			return exit.UsageError(err)
		}
		values := map[string]any{}
		for key, value := range variables {
			values[key] = value
		}
		if uri, err = expandTemplate(uri, values); err != nil {
			return exit.UsageError(err)
		}
	}
	result, err := c.ReadResource(ctx, uri)
	if err != nil {
		return err
	}
	if o.Flags.JSON {
		o.IO.Out.Result(result)
	}
	for _, part := range result.Contents {
		if err := ShowContents(o.Factory, "resource "+part.URI, part); err != nil {
			return err
		}
	}
	return nil
}

// ShowContents prints text and describes binary content, which it saves. With --json it only saves.
func ShowContents(f *cmdutil.Factory, what string, part *mcp.ResourceContents) error {
	switch {
	case f.Flags.JSON:
	case part.Blob != nil:
		f.IO.Out.Println(term.CleanLine(content.Binary(what, part.MIMEType, part.Blob)))
	default:
		f.IO.Out.Text(part.Text)
		if f.IO.Out.Terminal && !strings.HasSuffix(part.Text, "\n") {
			f.IO.Out.Write("\n")
		}
	}
	if part.Blob == nil {
		return nil
	}
	return cmdutil.SaveFile(f, part.URI, part.MIMEType, part.Blob)
}

// expandTemplate expands a URI template. Unknown variables are errors.
func expandTemplate(uri string, values map[string]any) (string, error) {
	template := &mcp.ResourceTemplate{URITemplate: uri}
	bare, err := template.Expand(nil)
	if err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if with, err := template.Expand(map[string]any{name: "x"}); err == nil && with == bare {
			return "", fmt.Errorf("unknown variable %q: the URI %q does not have it", name, uri)
		}
	}
	return template.Expand(values)
}

// get gets a prompt and prints its messages.
func get(ctx context.Context, o *cmdutil.Invocation, c *mcp.Client) error {
	prompts, err := cmdutil.Collect(c.Prompts(ctx))
	if err != nil {
		return err
	}
	prompt, err := cmdutil.Find(prompts, o.Words[0], "prompt", cmdutil.PromptName)
	if err != nil {
		return err
	}
	parameters := argument.PromptParameters(prompt)
	a, err := o.Ask.ReadArguments(ctx, o.Words[1:],
		&argument.List{Thing: "argument", Owner: "prompt", Parameters: parameters, Closed: true})
	if err != nil {
		return cmdutil.WrongArguments(ctx, o.Factory, err, "get", argument.Signature(prompt.Name, parameters))
	}
	o.Ask.WarnUndeclared(a)
	values := map[string]string{}
	for key, value := range a.Values {
		text, err := rawjson.Unquote(value)
		if err != nil {
			text = string(value) // :=5 is the string 5
		}
		values[key] = text
	}
	result, err := c.GetPrompt(ctx, prompt.Name, values)
	if err != nil {
		return err
	}
	if o.Flags.JSON {
		o.IO.Out.Result(result)
		return nil
	}
	for i, m := range result.Messages {
		if i > 0 {
			o.IO.Out.Write("\n")
		}
		o.IO.Out.Printf("%s:", term.CleanLine(string(m.Role)))
		if err := cmdutil.Show(o.Factory, m.Content); err != nil {
			return err
		}
	}
	return nil
}

// complete prints the completions of an argument.
func complete(ctx context.Context, o *cmdutil.Invocation, c *mcp.Client) error {
	name, typed, ok := strings.Cut(o.Words[1], "=")
	if !ok || name == "" {
		return exit.UsageError(fmt.Errorf("invalid argument %q: want NAME=TYPED", o.Words[1]))
	}
	values, err := argument.Assignments(o.Words[2:])
	if err != nil {
		return exit.UsageError(err)
	}
	params := &mcp.CompleteParams{Argument: name, Value: typed, Arguments: values}
	if strings.ContainsAny(o.Words[0], ":{") {
		params.Template = o.Words[0]
	} else {
		params.Prompt = o.Words[0]
	}
	completion, err := c.Complete(ctx, params)
	if err != nil {
		return err
	}
	if o.PrintedJSON(map[string]any{"completion": completion}) {
		return nil
	}
	for _, value := range completion.Values {
		o.IO.Out.Println(term.CleanLine(value))
	}
	if completion.HasMore {
		o.IO.Err.Printf("The server has more completions.")
	}
	return nil
}
