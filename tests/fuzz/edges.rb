# frozen_string_literal: true

module Fuzz
  # The texts of operations that no conductor ends. In them %{n} is the number that makes names unique, and %{v} a value.

  # State that one task, fiber or job must not see of another: how it is set, and how it is read.
  STATES = {
    "storage" => ["Fiber[:slot] = %{v}", "Fiber[:slot]"],
    "local" => ["Thread.current[:slot] = %{v}", "Thread.current[:slot]"],
    "match" => ["\"%{v}\" =~ /\\d+/", "$~ && $~[0]"],
    "line" => ["$_ = \"%{v}\"", "$_"],
    "variable" => ["Thread.current.thread_variable_set(:slot, %{v})", "Thread.current.thread_variable_get(:slot)"],
    "name" => ["Thread.current.name = \"slot %{v}\"", "Thread.current.name.to_s[/slot.*/]"],
    "priority" => ["Thread.current.priority = 1", "Thread.current.priority"],
    "report" => ["Thread.current.report_on_exception = true", "Thread.current.report_on_exception"]
  }.freeze

  # What is read: s%{n} is the source.
  FILES = {
    "file" => "s%{n} = stage.file(%{v})",
    "pipe" => "s%{n} = stage.filled(%{v}, *IO.pipe)",
    "unix" => "s%{n} = stage.filled(%{v}, *UNIXSocket.pair)",
    "string" => "s%{n} = StringIO.new(stage.bytes(%{v}))"
  }.freeze

  # What is written to: target%{n} is the target, and o%{n} gives what has arrived there.
  TARGETS = {
    "pipe" => "target%{n}, o%{n} = stage.drained(*IO.pipe)",
    "unix" => "target%{n}, o%{n} = stage.drained(*UNIXSocket.pair)",
    "file" => "target%{n} = stage.file(0); o%{n} = -> { target%{n}.close; File.binread(target%{n}.path) }",
    "string" => "target%{n} = StringIO.new; o%{n} = -> { target%{n}.string }"
  }.freeze

  READINGS = ["read(%{v})", "gets", "getc", "getbyte", "readpartial(%{v})", "pread(3, %{v})", "sysread(%{v})", "readline(chomp: true)",
              "read_nonblock(%{v})", "pos", "eof?", "lineno", "each_line.first", "read"].map { |call| "s%{n}.#{call}" }.freeze
  PUSHES = ["ungetc(\"X\")", "ungetc(\"\\u00e9\")", "ungetbyte(88)", "ungetbyte(\"YZ\")", "ungetbyte(\"u\" * 9000)"].map { |call| "s%{n}.#{call} && nil" }.freeze
  MOVES = ["seek(%{v})", "rewind", "pos = %{v}", "seek(-%{v}, IO::SEEK_END)", "seek(%{v}, IO::SEEK_CUR)", "write(\"written\")",
           "flush && nil", "sysseek(%{v})", "fsync"].map { |call| "s%{n}.#{call}" }.freeze
  COPIES = ["s%{n}, target%{n}", "s%{n}, target%{n}, %{v}", "s%{n}, target%{n}, %{v}, 2", "s%{n}, target%{n}, nil, 2", "s%{n}, target%{n}, 0"].map { |of| "IO.copy_stream(#{of})" }.freeze
  WRITES = ["write(\"put\")", "<< \"put\" && nil", "print(1, 2)"].map { |call| "target%{n}.#{call}" }.freeze
end
