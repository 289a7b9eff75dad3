package org.apache.spark.sql.delta.variant

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.objects.{Invoke, NewInstance}
import org.apache.spark.sql.delta.actions.DeletionVectorDescriptor
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.VariantVal

/**
 * The Variant of a Z85 text (Delta variantShredding, "Statistics for Variant Columns"), for Delta 4.0, which has no expression
 * for it. Executors do not have this package's classes, so the expression is made of Spark's, and the text is decoded by Delta's
 * class for deletion vectors, whose bitmaps are Z85 texts in the log, too.
 */
object Z85 {

  /** NULL if the text is NULL or damaged. */
  def variant(text: Expression): Expression = TryEval(let(bytes(text)) { bytes =>
    let(Add(ShiftRight(byte(bytes, Literal(0)), Literal(6)), Literal(1))) { width => // of an offset
      def number(index: Expression) = (0 until 4).map { at =>
        val one = byte(bytes, Add(Multiply(index, width), Literal(1 + at)))
        If(LessThan(Literal(at), width), ShiftLeft(one, Literal(8 * at)), Literal(0))
      }.reduce[Expression](Add(_, _))
      let(number(Literal(0))) { keys =>
        val strings = number(Add(keys, Literal(1))) // their bytes
        let(Add(Add(Multiply(Add(keys, Literal(2)), width), Literal(1)), strings)) { size =>
          val value = Substring(bytes, Add(size, Literal(1)), Literal(Int.MaxValue))
          val metadata = Substring(bytes, Literal(1), size)
          NewInstance(classOf[VariantVal], Seq(value, metadata), VariantType)
        }
      }
    }
  })

  private def bytes(text: Expression): Expression = {
    def constant(value: AnyRef) = Literal.fromObject(value)
    val string = Invoke(text, "toString", ObjectType(classOf[String]))
    val blocks = Cast(IntegralDivide(Cast(Length(text), LongType), Literal(5L)), IntegerType)
    val arguments = Seq(constant("i"), string, constant(None), Multiply(blocks, Literal(4)), Literal(0L), constant(None))
    val inline = NewInstance(classOf[DeletionVectorDescriptor], arguments, ObjectType(classOf[DeletionVectorDescriptor]))
    Invoke(inline, "inlineData", BinaryType)
  }

  /** A byte, from 0 to 255. */
  private def byte(bytes: Expression, index: Expression): Expression =
    Cast(Conv(Hex(Substring(bytes, Add(index, Literal(1)), Literal(1))), Literal(16), Literal(10)), IntegerType)

  /** An expression in which a value occurs more than once, and is computed once. */
  private def let(value: Expression)(body: Expression => Expression): Expression = {
    val variable = NamedLambdaVariable("value", value.dataType, nullable = true)
    GetArrayItem(ArrayTransform(CreateArray(Seq(value)), LambdaFunction(body(variable), Seq(variable))), Literal(0))
  }
}
