# frozen_string_literal: true

require "rbconfig"
require "socket"

# Differences between systems, for tests and their child processes.
module Platform
  WINDOWS = RUBY_PLATFORM.match?(/mingw|mswin/)

  # A signal that a process may send itself. (Windows has no USR1 and USR2.)
  SIGNAL = WINDOWS ? :TERM : :USR2

  # Options of spawn.
  OWN_GROUP = (WINDOWS ? { new_pgroup: true } : { pgroup: true }).freeze

  # Code for tests and children, on a single line. `shell` is what spawn and popen take for shell commands. On Windows, Ruby
  # emulates the few that tests use, and a pair of UNIX sockets is a pair of TCP sockets.
  PRELUDE = (WINDOWS ? <<~'RUBY' : "def shell(commands) = ['sh', '-c', commands]\n").tr("\n", ";")
    require "rbconfig"
    require "socket"
    [$stdout, $stderr].each(&:binmode)
    RUBY = RbConfig.ruby.dup.freeze
    COMMANDS = "[$stdin, $stdout].each(&:binmode); def self.method_missing(name, *) = name.to_s; def echo(text) = puts(text); def read(*) = $stdin.gets; def cat = print($stdin.read); ".freeze
    def shell(commands) = [RUBY, "--disable-gems", "-e", COMMANDS + commands]
    module PairOfTCP
      def pair(type = nil, *)
        return super unless [nil, :STREAM].include?(type)
        TCPServer.open("127.0.0.1", 0) { |server| [TCPSocket.new("127.0.0.1", server.addr[1]), server.accept] }
      end
    end
    UNIXSocket.singleton_class.prepend(PairOfTCP)
  RUBY
  class_eval(PRELUDE)

  def windows? = WINDOWS

  # @return [Float] the processor time of this process
  def cpu = WINDOWS ? Process.times.then { |times| times.utime + times.stime } : Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

  # @return [Float] the processor time of this thread; on Windows that of the process, because Ruby knows no other there
  def thread_cpu = WINDOWS ? cpu : Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)

  module Libraries
    # Loads a library that Ruby may be built without.
    def optional(library)
      require library
    rescue LoadError
      nil
    end
  end
end
