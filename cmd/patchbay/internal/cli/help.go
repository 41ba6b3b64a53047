package cli

import "github.com/spf13/cobra"

// topics are texts of the help that belong to no verb.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "arguments", Short: "How arguments of tools and prompts are given", Long: helpArguments},
		{Use: "config", Short: "Where names of targets come from", Long: helpConfig},
		{Use: "answers", Short: "How questions of a server are answered from a file", Long: helpAnswers},
		{Use: "json", Short: "What --json prints", Long: helpJSON},
		{Use: "exit-codes", Short: "What the exit codes mean", Long: helpExitCodes},
	}
}

const helpArguments = `Arguments of tools stand behind the name of the tool:

  key=value     made what the tool's schema wants: a text, a number, true or false, JSON for
                objects; for a list, JSON or one element, and the key again for the next
  key:=json     JSON as it is
  key=@file     the text of a file (a text that begins with @ is written key:='"@…"')
  key:=@file    the JSON of a file
  @file         a JSON object with arguments
  -             a JSON object with arguments from standard input
  {…}           a JSON object with arguments

They are taken from left to right; what comes later wins. Arguments that the tool requires
and that are missing, and those that it does not know, are told before anything is called.
Arguments of prompts are given alike; their values are texts.
`

const helpConfig = `A target without :// is the name of a server in a configuration file of the form that most
clients read:

  {
    // comments and trailing commas are fine
    "mcpServers": {
      "files": {"command": "npx", "args": ["-y", "@acme/files", "${HOME}"], "env": {}, "cwd": "."},
      "web": {"type": "http", "url": "https://example.com/mcp",
              "headers": {"Authorization": "Bearer ${TOKEN}"}},
    },
  }

The member may be called servers, as some editors have it. The type is stdio, http,
streamable-http or sse, and may be left out. ${NAME} stands for a variable of the
environment, ${NAME:-text} for text if it is not set or empty. A relative cwd begins at the
file. Members that are not understood do no harm. A server that is disabled there can be
named all the same.

The file is that of --config, else the one that $PATCHBAY_CONFIG names; else the name is
looked for in .mcp.json and mcp.json in the current directory, then in patchbay/mcp.json in
the user's directory for configuration. The first that has it wins.

A name from a file is a command that the author of the file chose: using it runs that
command. On a terminal it is shown before it is started.
`

const helpAnswers = `A server may ask questions while it works: a form to fill in, a page to visit, an answer of
a language model. They are asked on the terminal. Where there is none, or with --no-input,
they are declined; those of tasks that are watched or answered later (see help task) are left
open. --answers FILE answers them first:

  {
    "elicitation": [
      {"message": "Deploy", "content": {"value": true}},
      {"field": "name", "content": {"name": "Ann"}},
      {"action": "decline"}
    ],
    "sampling": [
      {"message": "weather", "text": "It will rain.", "model": "crystal-ball"},
      {"action": "decline"}
    ]
  }

The first entry that fits is taken. "message" has to be a part of the question (of the last
message, for sampling), "field" the name of a field of the form. An entry with one of them
answers any number of questions, one without answers one. "action" is accept, decline or
cancel; accept when left out. "content" is the form, filled in; an entry without it and
with the action accept agrees to visit a page, which is printed and not opened. For
sampling, "result" may stand in place of text and model: a whole CreateMessageResult.
`

const helpJSON = `With --json, standard output holds JSON and nothing else: one value on one line, or laid out
on a terminal. Names and meanings stay as they are; members may be added.

  tools         {"tools": [Tool…]}
  resources     {"resources": [Resource…]}
  templates     {"resourceTemplates": [ResourceTemplate…]}
  prompts       {"prompts": [Prompt…]}
  call          CallToolResult; isError is true if the tool failed
  call --task   {"task": task}; CallToolResult if the server answered at once, without a task
  read          ReadResourceResult
  get           GetPromptResult
  complete      {"completion": {"values": [text…], "total": number, "hasMore": boolean}}
  rpc           the result, in the newest revision's form, whether --json is given or not
  listen        one line for each event: {"event": name, "uri": text, "filter": {…}}; the names are
                listening, resync, tools_changed, prompts_changed, resources_changed, resource_updated
  ping          {"ms": number, "revision": text}
  probe         {"target", "server": Implementation, "revision", "versions": [text…],
                 "eras": ["modern", "session"], "capabilities": ServerCapabilities, "instructions",
                 "revisions": [{"revision", "spoken": boolean, "ms": number, "error": text}…],
                 "connectMs": number, "pingMs": number}
  version       {"version": text, "revisions": [text…]}
  skills list   {"skills": [skill…]}, a skill being {"uri": text, "frontmatter": {…}, "resources":
                 "dynamic" or [{"uri": text, "digest": text, "size": number}…]}
  skills show   {"skill": skill, "fingerprint": text}, a dynamic one without fingerprint
  skills read   ReadResourceResult, of what was checked
  skills verify {"skills": [{"uri": text, "fingerprint": text, "files": number, how many of them
                 are as listed, "problems": [text…]}…]}
  task list     {"tasks": [task…]}; without a target {"tasks": [{"id", "tool", "target", "key",
                 "started"}…]}, where key tells targets of one name apart
  task get, task answer, task cancel
                task, which is {"id": text, "status": "working", "input_required", "completed",
                 "failed" or "cancelled", "tool": text, "message": text, "created": time,
                 "updated": time, "ttlMs": number, "pollIntervalMs": number,
                 "inputRequests": {key: InputRequest}, "result": CallToolResult,
                 "error": {"code": number, "message": text, "data": any}}
  task watch    one line for each change: {"task": task}, without its result; at last the
                 result alone, as call prints it
  auth login, auth status
                {"server": text, "loggedIn": boolean, "issuer": text, "clientId": text,
                 "scopes": [text…], "expires": time, "renewable": boolean,
                 "storage": {"directory": text, "key": "keyring", "file" or "passphrase"},
                 "environment": boolean, true if the environment logs in}
  auth token    {"accessToken": text, "tokenType": text, "expires": time}
  auth logout   {"loggedOut": boolean}

Capitalised types are those of the newest revision's schema, whichever revision the server
speaks. What is absent is left out. If the command fails otherwise than by isError, it
prints

  {"error": {"kind": text, "exit": number, "message": text, "code": number, "data": any,
             "login": text}}

where kind is the word in help exit-codes, code and data are there if the server answered
with an error, and login is the command to run if a login can help.
`

const helpExitCodes = `  0    ok
  1    failure               the server answered with an error, a task was cancelled, or anything not
                             below
  2    usage                 wrong flags, arguments, configuration or files
  3    unreachable           no server there: no connection, no such command, it ended, or what
                             answers does not speak the protocol
  4    auth_required         a login is wanted (see help auth), or HTTP status 401 or 403
  5    tool_failed           the tool ran and failed
  6    not_found             no such tool, prompt, resource, method or task
  7    timeout               no answer in time, of the server or of the user who was to log in
  8    protocol_violation    the server broke the protocol, or there is no common revision of it
  130  interrupted           by a signal

The words are the kinds in the JSON of errors, see help json.
`
