package term

// hostile is text that acts on a terminal or misleads its reader.
const hostile = "red \x1b[31malert\x1b]0;title\x07\u202Egnp.exe\u200b\u009b2J\r!"
