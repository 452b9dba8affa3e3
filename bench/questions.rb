# frozen_string_literal: true

# What a scheduler does where schedulers differ: one process for each question, and its answer as a table.
#
#   bin/bench questions                  of reactor
#   bin/bench questions async itsi …     and of others: names in bench/schedulers, or Ruby files that end in a scheduler
#
# Each answer is yes, or what happened instead. RUBYLIB names where Ruby finds the other libraries.
require "etc"
require "open3"
require "rbconfig"
require "socket"
require "tempfile"
require "timeout"

module Bench
  # The questions. The block of each runs in a fiber, and returns true for yes, or what it has seen.
  module Questions
    LIMIT = 5
    SCHEDULERS = File.join(__dir__, "schedulers")
    ASKED = {
      "`IO.select` starts no thread" => lambda {
        reader, writer = IO.pipe
        count = Thread.list.size
        found = nil
        Fiber.schedule { found = IO.select([reader], nil, nil, LIMIT) }
        sleep 0.05
        started = Thread.list.size - count
        writer << "x"
        sleep 0.05
        (started.zero? && found == [[reader], [], []]) || "#{started} threads, #{found ? 'found' : 'not found'}"
      },
      "`IO.select([io])` works" => lambda {
        reader, writer = IO.pipe
        writer << "x"
        IO.select([reader]) == [[reader], [], []]
      },
      "`Process.wait` starts no thread, and stops no fiber" => lambda {
        ticks = 0
        count = Thread.list.size
        most = 0
        Fiber.schedule { 10.times { (sleep 0.01; ticks += 1; most = [most, Thread.list.size - count].max) } }
        system("sleep 0.2")
        (most.zero? && ticks >= 5) || "#{most} threads, #{ticks} ticks"
      },
      "`flock` stops no fiber" => lambda {
        Tempfile.create("lock") do |file|
          File.open(file.path) do |first|
            first.flock(File::LOCK_EX)
            Fiber.schedule { file.flock(File::LOCK_EX) }
            first.flock(File::LOCK_UN)
            sleep 0.01
          end
        end
        true
      },
      "a closed IO wakes its fiber" => lambda {
        reader, _writer = IO.pipe
        seen = nil
        Fiber.schedule do
          reader.read(1)
        rescue IOError => error
          seen = error
        end
        sleep 0.05
        reader.close
        sleep 0.05
        !seen.nil?
      },
      "`read_nonblock` of a pipe does not wait" => lambda {
        reader, _writer = IO.pipe
        reader.read_nonblock(1, exception: false) == :wait_readable
      },
      "`IO#timeout=` raises `IO::TimeoutError`" => lambda {
        reader, _writer = IO.pipe
        reader.timeout = 0.05
        begin
          Timeout.timeout(1) { reader.read(1) }
        rescue StandardError => error
          error.is_a?(IO::TimeoutError) || error.class.to_s
        end
      },
      "a sleep after a Timeout is not cut short" => lambda {
        begin
          Timeout.timeout(0.02) { sleep 0.3 }
        rescue Timeout::Error
          started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
          sleep 0.6
        end
        passed = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
        passed >= 0.6 || "0.6 s took #{passed.round(2)} s"
      },
      "a forked child is plain Ruby" => lambda {
        reader, writer = IO.pipe
        pid = fork do
          sleep 0.01
          queue = Thread::Queue.new
          Thread.new { queue << 1 }
          queue.pop
          writer << "well"
          writer.flush
          exit!(0)
        rescue Exception => error # rubocop:disable Lint/RescueException -- it is the answer
          writer << error.class.to_s
          writer.flush
          exit!(1)
        end
        writer.close
        sleep 0.5
        Process.kill(:KILL, pid)
        said = reader.read_nonblock(100, exception: false)
        said == "well" || (said.is_a?(String) ? said : "it says nothing")
      },
      "an Enumerator may wait" => lambda {
        value = nil
        numbers = Enumerator.new { |yielder| (sleep 0.01; yielder << 1) }
        Fiber.schedule { value = numbers.next }
        sleep 0.1
        value == 1
      },
      "fibers that wait for each other raise an error" => :deadlock
    }.freeze

    module_function

    # In the child: asks, and prints the answer.
    def answer(file, question)
      Fiber.set_scheduler(TOPLEVEL_BINDING.eval(File.read(file), file))
      return deadlock if ASKED.fetch(question) == :deadlock

      Fiber.schedule { say(asked(ASKED.fetch(question))) }
      Fiber.set_scheduler(nil)
    end

    def asked(question)
      question.call
    rescue Exception => error # rubocop:disable Lint/RescueException -- it is the answer
      "#{error.class}: #{error.message.lines.first}"
    end

    def deadlock
      Fiber.schedule { Thread::Queue.new.pop }
      Fiber.set_scheduler(nil)
      say("it ends without a word")
    rescue Exception => error # rubocop:disable Lint/RescueException -- it is the answer
      say(error.message.include?("deadlock") || error.message.include?("Deadlock") || error.class.to_s)
    end

    def say(answer)
      puts({ true => "yes", false => "no", nil => "no" }.fetch(answer, answer.to_s[0, 60]))
      $stdout.flush
      exit!(0)
    end

    def ask(file, question)
      command = [RbConfig.ruby, "-W0", "-I#{File.expand_path('../lib', __dir__)}", __FILE__, "--answer", file, question]
      out, err, status = Open3.capture3("timeout", "-s", "KILL", LIMIT.to_s, *command)
      return "hangs" if status.signaled? || status.exitstatus == 137

      out.lines.first&.chomp || "fails: #{err.lines.first.to_s.chomp[0, 60]}"
    end

    def table(names)
      files = names.to_h { |name| [File.basename(name, ".rb"), File.file?(name) ? File.expand_path(name) : File.join(SCHEDULERS, "#{name}.rb")] }
      puts "#{RUBY_DESCRIPTION}, #{Time.now.utc.strftime('%F')}", "", "| | #{files.keys.join(' | ')} |", "| --- |#{' --- |' * files.size}"
      ASKED.each_key { |question| puts "| #{question} | #{files.each_value.map { |file| ask(file, question).tr('|', '/') }.join(' | ')} |" }
    end
  end
end

if $PROGRAM_NAME == __FILE__
  ARGV.first == "--answer" ? Bench::Questions.answer(*ARGV.drop(1)) : Bench::Questions.table(["reactor", *ARGV])
end
