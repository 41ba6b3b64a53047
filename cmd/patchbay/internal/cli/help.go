package cli

import "github.com/spf13/cobra"

// topics returns the help topics that belong to no command.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "arguments", Short: "How to pass arguments to tools and prompts", Long: helpArguments},
		{Use: "config", Short: "How to name servers in a configuration file", Long: helpConfig},
		{Use: "answers", Short: "How to answer elicitation and sampling from a file", Long: helpAnswers},
		{Use: "json", Short: "The output of --json", Long: helpJSON},
		{Use: "exit-codes", Short: "The exit codes", Long: helpExitCodes},
	}
}

const helpArguments = `The arguments of a tool follow its name:

  key=value     a value, converted to the type in the tool's input schema: a string, a number,
                true or false, or JSON for an object. For an array give JSON, or one element,
                and repeat the key for the next one.
  key:=json     a JSON value
  key=@file     the text of a file (for a string that begins with @, write key:='"@…"')
  key:=@file    the JSON value in a file
  @file         a JSON object of arguments from a file
  -             a JSON object of arguments from standard input
  {…}           a JSON object of arguments

Later arguments override earlier ones. Missing and unknown arguments are reported before the
tool is called. Arguments of prompts have the same form; their values are strings.
`

const helpConfig = `A target without :// is the name of a server in a configuration file, in the format that most
MCP clients read:

  {
    // comments and trailing commas are allowed
    "mcpServers": {
      "files": {"command": "npx", "args": ["-y", "@acme/files", "${HOME}"], "env": {}, "cwd": "."},
      "web": {"type": "http", "url": "https://example.com/mcp",
              "headers": {"Authorization": "Bearer ${TOKEN}"}},
    },
  }

"servers" is accepted in place of "mcpServers". The optional "type" is stdio, http,
streamable-http or sse. ${NAME} is replaced by an environment variable, ${NAME:-default} by
the default if the variable is unset or empty. A relative "cwd" is relative to the file.
Unknown members are ignored, and so is "disabled".

The file is the one given by --config, else by $PATCHBAY_CONFIG. Without either, the first of
these files that has the name is used: .mcp.json and mcp.json in the current directory, then
patchbay/mcp.json in the user's configuration directory.

Using a name runs the command that the author of the file chose. On a terminal the command is
shown before it starts.
`

const helpAnswers = `A server can ask questions during a call: elicitation (a form to fill in, or a page to open)
and sampling (the answer of a language model). On a terminal you are prompted. Without a
terminal, or with --no-input, questions are declined; questions of tasks (see help task) stay
open. --answers FILE answers questions from a file first:

  {
    "elicitation": [
      {"message": "Deploy", "content": {"value": true}},
      {"field": "name", "content": {"name": "Ann"}},
      {"action": "decline"}
    ],
    "sampling": [
      {"message": "weather", "text": "It will rain.", "model": "my-model"},
      {"action": "decline"}
    ]
  }

The first matching entry is used:

  message   the question contains this text; for sampling, the last message does
  field     the form has a field of this name
  action    accept (default), decline or cancel
  content   the values of the form
  text, model
            the text and model of a sampling result
  result    a whole CreateMessageResult, in place of text and model

An entry with message or field matches any number of questions, another entry one. An entry
without content and with the action accept agrees to open a page: its URL is printed, and
not opened.
`

const helpJSON = `With --json, standard output is one JSON value per line (indented on a terminal). Members may
be added in later versions; existing ones stay as they are.

  tools         {"tools": [Tool…]}
  resources     {"resources": [Resource…]}
  templates     {"resourceTemplates": [ResourceTemplate…]}
  prompts       {"prompts": [Prompt…]}
  call          CallToolResult; isError is true if the tool failed
  call --task   {"task": task}; CallToolResult if the server did not create a task
  read          ReadResourceResult
  get           GetPromptResult
  complete      {"completion": {"values": [string…], "total": number, "hasMore": boolean}}
  rpc           the result in the format of the newest revision, with or without --json
  listen        one line per event: {"event": name, "uri": string, "filter": {…}}; the names are
                listening, resync, tools_changed, prompts_changed, resources_changed, resource_updated
  ping          {"ms": number, "revision": string}
  probe         {"target", "server": Implementation, "revision", "versions": [string…],
                 "eras": ["modern", "session"], "capabilities": ServerCapabilities, "instructions",
                 "revisions": [{"revision", "spoken": boolean, "ms": number, "error": string}…],
                 "connectMs": number, "pingMs": number}
  version       {"version": string, "revisions": [string…]}
  skills list   {"skills": [skill…]}; a skill is {"uri": string, "frontmatter": {…}, "resources":
                 "dynamic" or [{"uri": string, "digest": string, "size": number}…]}
  skills show   {"skill": skill, "fingerprint": string}; no fingerprint for a dynamic skill
  skills read   ReadResourceResult, after verification
  skills verify {"skills": [{"uri": string, "fingerprint": string, "files": number of verified
                 files, "problems": [string…]}…]}
  task list     {"tasks": [task…]}; without a target {"tasks": [{"id", "tool", "target", "key",
                 "started"}…]}, where key differs between targets of the same name
  task get, task answer, task cancel
                task: {"id": string, "status": "working", "input_required", "completed",
                 "failed" or "cancelled", "tool": string, "message": string, "created": time,
                 "updated": time, "ttlMs": number, "pollIntervalMs": number,
                 "inputRequests": {key: InputRequest}, "result": CallToolResult,
                 "error": {"code": number, "message": string, "data": any}}
  task watch    one line per change: {"task": task}, without result; then the CallToolResult
  auth login, auth status
                {"server": string, "loggedIn": boolean, "issuer": string, "clientId": string,
                 "scopes": [string…], "expires": time, "renewable": boolean,
                 "storage": {"directory": string, "key": "keyring", "file" or "passphrase"},
                 "environment": boolean, true if the environment has client credentials}
  auth token    {"accessToken": string, "tokenType": string, "expires": time}
  auth logout   {"loggedOut": boolean}

Capitalised types are those of the newest revision's schema, whichever revision the server
uses. Absent values are omitted. On failure other than isError the output is

  {"error": {"kind": string, "exit": number, "message": string, "code": number, "data": any,
             "login": string}}

kind is the word in help exit-codes; code and data are present if the server returned a
JSON-RPC error; login is the command to run if logging in may help.
`

const helpExitCodes = `  0    ok
  1    failure               the server returned an error, a task was cancelled, or any other error
  2    usage                 invalid flags, arguments, configuration or files
  3    unreachable           could not connect, could not start the command, the connection was lost,
                             or the other side does not speak MCP
  4    auth_required         login required (see help auth), or HTTP status 401 or 403
  5    tool_failed           the tool returned an error (isError)
  6    not_found             unknown tool, prompt, resource, method or task
  7    timeout               the server did not answer, or the user did not log in, in time
  8    protocol_violation    the server violated the protocol, or has no revision in common
  130  interrupted           by a signal

The words are the kinds of errors with --json, see help json.
`
