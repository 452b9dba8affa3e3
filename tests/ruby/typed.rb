# frozen_string_literal: true

# Runs tests while the type checker of the rbs gem compares arguments and results of the public methods with their
# signatures in sig/reactor.rbs. (bin/check types runs this.)
#
#   ruby -Ilib tests/ruby/typed.rb [test_file.rb …] [minitest options]
#
# The checks are prepended modules. The setup of rbs renames the methods instead, but the scheduler must see that a hook is
# overridden (see NativeScheduler#unblock).

require "rbs"
require "rbs/test"
require_relative "helper"
require "reactor/testing"
require "reactor/async/selector" if defined?(Reactor::Poller)

# Prepends the checks to the classes, and collects the violations.
module Typed
  FOUND = Hash.new(0)
  CALLS = Hash.new(0)
  SAMPLES = 10 # elements of a collection to check
  CHECKS = {}  # class => [definition, type checker]

  # Not checked: blocking_operation_wait, because an override changes its result; unblock, because ending threads call it, and
  # Ruby code around it would make them forget their error.
  LEFT_OUT = %i[initialize blocking_operation_wait unblock].freeze

  RBS.logger_level = :fatal

  class << self
    # Every defined class and module of the signatures.
    def install
      loader = RBS::EnvironmentLoader.new
      %w[socket timeout].each { |library| loader.add(library: library) } # as sig/manifest.yaml says
      loader.add(path: Pathname(File.expand_path("../../sig", __dir__)))
      environment = RBS::Environment.from_loader(loader).resolve_type_names
      builder = RBS::DefinitionBuilder.new(env: environment)
      environment.class_decls.each_key do |type|
        next unless type.to_s.match?(/\A::Reactor(::|\z)/) && (found = constant(type))

        prepend_to(found, builder.build_instance(type), builder) if found.is_a?(Class)
        prepend_to(found.singleton_class, builder.build_singleton(type), builder)
      end
    end

    def check(place, receiver, name, arguments, value, given)
      return if Ractor.current != Ractor.main || Thread.current[:typed] # other Ractors may not access these constants

      Thread.current[:typed] = true # the checker may call checked methods
      definition, checker = CHECKS.fetch(place)
      CALLS["#{place}##{name}"] += 1
      call = RBS::Test::ArgumentsReturn.return(arguments: arguments, value: value)
      trace = RBS::Test::CallTrace.new(method_name: name, method_call: call, block_calls: [], block_given: given)
      errors = checker.overloaded_call(definition.methods.fetch(name), name, trace, errors: [])
      errors.each { |error| FOUND["#{RBS::Test::Errors.to_string(error)} (#{receiver.class})"] += 1 }
    ensure
      Thread.current[:typed] = nil if definition
    end

    # @return [Boolean] whether all calls matched their signatures
    def report
      puts "types: #{CALLS.values.sum} calls of #{CALLS.size} methods checked, #{FOUND.size} violations"
      FOUND.each { |text, count| puts "types: #{text}, #{count} times" }
      FOUND.empty? && CALLS.any?
    end

    private

    def constant(type)
      type.to_s.delete_prefix("::").split("::").inject(Object) { |outer, name| outer.const_get(name, false) }
    rescue NameError
      nil # a native class, and the native library is not loaded
    end

    def prepend_to(place, definition, builder)
      CHECKS[place] = [definition, RBS::Test::TypeCheck.new(self_class: place, builder: builder, sample_size: SAMPLES, unchecked_classes: [])]
      names = definition.methods.keys.select { |name| !LEFT_OUT.include?(name) && signed?(definition, name) && ours?(place, name) }
      label = place.inspect[/\A#<Class:(.*)>\z/, 1]
      text = names.map { |name| source(label ? "#{label}.singleton_class" : place.name, name) }.join
      place.prepend(Module.new { class_eval(text, __FILE__, 1) }) unless names.empty?
    end

    def signed?(definition, name) = definition.methods.fetch(name).defs.any? { |type| type.defined_in.to_s.start_with?("::Reactor") }

    def ours?(place, name)
      place.public_method_defined?(name) &&
        (place.singleton_class? ? place.public_method_defined?(name, false) : place.instance_method(name).owner.name.to_s.start_with?("Reactor"))
    end

    # As source text, because other Ractors may not call methods defined by blocks.
    def source(place, name)
      <<~RUBY
        ruby2_keywords def #{name}(*arguments, &block)
          super.tap { |value| ::Typed.check(#{place}, self, :#{name}, arguments, value, !block.nil?) }
        end
      RUBY
    end
  end
end

Typed.install
files, options = ARGV.partition { |argument| argument.end_with?(".rb") }
ARGV.replace(options)
files = Dir[File.join(__dir__, "test_*.rb")].sort if files.empty?
Minitest.after_run { exit 1 unless Typed.report }
files.each { |file| require File.expand_path(file) }
