# frozen_string_literal: true

require "rbconfig"
require "tempfile"

# Native stacks of a process by gdb, because Ruby's backtraces do not show where C or Rust code waits.
module Stacks
  FRAMES = 30

  # @return [String] the native stack of each thread, or one line with the reason why there is none
  def self.of(pid)
    return "(native stacks: gdb is not installed)\n" unless gdb

    # Output goes to a file. While gdb stops this process, a pipe to it would not be read.
    Tempfile.create("stacks") do |file|
      options = { in: File::NULL, out: file, err: File::NULL }
      system(gdb, "-nx", "-batch", "-p", pid.to_s, "-ex", "set pagination off", "-ex", "thread apply all bt #{FRAMES}", **options)
      file.rewind
      lines = file.read.lines.grep(/\A(Thread \d|#\d)/)
      next "(native stacks of process #{pid}: gdb could not attach)\n" if lines.empty?

      "native stacks of process #{pid}:\n#{lines.join}"
    end
  end

  # The stacks of a process and of all its descendants.
  def self.of_tree(pid) = tree(pid).map { |one| "#{command(one)}\n#{of(one)}" }.join("\n")

  # The process and its descendants; only the process on other systems than Linux.
  def self.tree(pid)
    return [pid] unless RUBY_PLATFORM.include?("linux")

    children = Dir.glob("/proc/#{pid}/task/*/children").flat_map { |path| File.read(path).split rescue [] }
    [pid, *children.flat_map { |child| tree(Integer(child)) }]
  end

  def self.command(pid)
    "process #{pid}: #{File.read("/proc/#{pid}/cmdline").tr("\0", " ").strip[0, 200]}"
  rescue SystemCallError
    "process #{pid}"
  end

  def self.gdb
    @gdb ||= ENV.fetch("PATH", "").split(":").map { |folder| File.join(folder, "gdb") }.find { |path| File.executable?(path) }
  end
  private_class_method :command, :gdb
end
